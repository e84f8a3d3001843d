"""Run git to fetch folders of one commit. Nothing is checked out: files are written from their blobs.

So no hook, filter or line ending of a repository has a say, and what is on disk is what the commit holds.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from proctor.errors import FetchError, ProctorError, TaskError, UsageError
from proctor.outgoing import proxy_for
from proctor.processes import OF_GIT, host_environment
from proctor.tasks.address import COMMIT, GitAddress, GitUrl

Notify = Callable[[str], None]
"""Hears what happens, one sentence at a time."""
Progress = Callable[[str], None]
"""Hears how far git is: `Receiving objects:  45% (450/1000)`."""

_TRIES = 3
_FIRST_WAIT_S = 0.5
_LOCAL = {
    *(
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_COMMON_DIR",
        "GIT_NAMESPACE",
    ),
    *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_PREFIX", "GIT_CONFIG", "GIT_CONFIG_PARAMETERS"),
    *("GIT_CEILING_DIRECTORIES", "GIT_TRACE_CURL", "GIT_CURL_VERBOSE"),
}
"""Variables that would make git look at another repository than ours, or say too much."""
_FOR_STRANGERS = ("PATH", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "GIT_EXEC_PATH")
"""Variables that git needs for a stranger's repository; no key, no helper and no agent is among them."""
_CUT = re.compile(
    r"could not resolve host|failed to connect|couldn't connect|connection (?:reset|refused|timed out|closed)"
    r"|timed out|early eof|unexpected disconnect|hung up|rpc failed|empty reply|transfer closed"
    r"|returned error: (?:429|5\d\d)|network is unreachable|operation too slow|temporary failure"
    r"|unable to read|bad pack header|invalid index-pack|index-pack failed|expected flush|the remote end",
    re.IGNORECASE,
)
_REFUSED = re.compile(r"not our ref|unadvertised object|shallow|filter", re.IGNORECASE)
"""The server does not do it this way; it may do it another way."""
_AUTH = re.compile(
    r"could not read (?:username|password)|authentication failed|permission denied|terminal prompts"
    r"|returned error: (?:401|403)|host key verification",
    re.IGNORECASE,
)
_ABSENT = re.compile(
    r"repository .* not found|does not appear to be a git repository|does not exist|returned error: 404"
    r"|not a git repository",
    re.IGNORECASE,
)


class GitError(Exception):
    """A git command ended with an error; `said` is its own words."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.said = said


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One name in a commit."""

    mode: str
    kind: str
    digest: str


Tree = Mapping[str, TreeEntry]
"""Path → entry, for a whole commit."""


def resolve_ref(address: GitAddress) -> str:
    """The commit that a branch or tag is at now."""
    repository = address.repository
    with _translated(repository):
        said = _patiently(lambda: run_git(repository, ["ls-remote", "--", repository.url]))
    known = {name: digest for digest, _, name in (line.partition("\t") for line in said.splitlines())}
    for name in (address.ref, f"refs/heads/{address.ref}", f"refs/tags/{address.ref}"):
        # A tag may be an object of its own; what it points at is listed as `name^{}`.
        found = known.get(f"{name}^{{}}") or known.get(name)
        if found and COMMIT.fullmatch(found):
            return found
    short = "; a commit is written in full, with 40 digits" if re.fullmatch(r"[0-9a-f]+", address.ref) else ""
    raise TaskError(f"{repository.url}: no branch or tag is named '{address.ref}'{short}")


class Commit:
    """One commit of a repository, fetched into a bare folder that lives as long as the `with` block."""

    def __init__(self, repository: GitUrl, commit: str, folder: Path, progress: Progress | None) -> None:
        self.repository = repository
        self.commit = commit
        self.folder = folder
        self.progress = progress
        self._plan = 0

    def __enter__(self) -> Self:
        with _translated(self.repository):
            self._fetch_anyhow(TaskError(f"{self.repository.url}: there is no commit {self.commit}"))
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def tree(self) -> Tree:
        """Everything the commit names."""
        said = self._git("ls-tree", "-r", "-t", "-z", "--full-tree", self.commit)
        found = {}
        for line in said.split("\0"):
            if line:
                about, _, path = line.partition("\t")
                found[path] = TreeEntry(*about.split(" ", 2))
        return found

    def root_digest(self) -> str:
        """The digest of the commit's top folder."""
        return self._git("rev-parse", f"{self.commit}^{{tree}}").strip()

    def fetch(self, blobs: Collection[str]) -> None:
        """Fetch the content of files, all in one go; where the server cannot do that, fetch everything."""
        with _translated(self.repository):
            while missing := self._missing() & set(blobs):
                wants = "\n".join(sorted(missing)) + "\n"
                try:
                    _patiently(lambda wants=wants: self._fetch(*_BLOBS, stdin=wants))  # type: ignore[misc]
                    if not self._missing() & missing:
                        return
                except GitError as error:
                    if _AUTH.search(error.said):
                        raise
                self._plan += 1
                self._fetch_anyhow(
                    FetchError(f"{self.repository.url}: the server does not deliver all files")
                )

    @contextlib.contextmanager
    def reader(self) -> Iterator[Callable[[str, Path], None]]:
        """A function that writes one blob to a new file."""
        with subprocess.Popen(
            ["git", "cat-file", "--batch"],
            cwd=self.folder,
            env=_environment(self.repository),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:

            def write(digest: str, place: Path) -> None:
                assert process.stdin
                assert process.stdout
                process.stdin.write(f"{digest}\n".encode())
                process.stdin.flush()
                about = process.stdout.readline().split()
                if len(about) != 3 or about[1] != b"blob":
                    raise FetchError(
                        f"{self.repository.url}: the content of a file did not arrive; try again"
                    )
                left = int(about[2])
                with place.open("xb") as file:
                    while left:
                        chunk = process.stdout.read(min(left, 1 << 20))
                        if not chunk:
                            raise FetchError(f"{self.repository.url}: git ended too early; try again")
                        file.write(chunk)
                        left -= len(chunk)
                process.stdout.read(1)

            try:
                yield write
            finally:
                process.kill()

    def _fetch_anyhow(self, otherwise: ProctorError) -> None:
        """Try the ways of fetching that are left, until one has the commit."""
        while not self._fetched():
            self._plan += 1
            if self._plan == len(_PLANS):
                raise otherwise

    def _fetched(self) -> bool:
        """Try the present way of fetching, in a new folder; whether the commit is there now."""
        arguments = _PLANS[self._plan]
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        kind = "sha1" if len(self.commit) == 40 else "sha256"
        self._git("init", "-q", "--bare", f"--object-format={kind}", ".")
        self._git("remote", "add", "origin", self.repository.url)
        try:
            _patiently(lambda: self._fetch(*(each.format(commit=self.commit) for each in arguments)))
            self._git("cat-file", "-e", f"{self.commit}^{{commit}}")
        except GitError as error:
            if "dumb http" in error.said:
                self._plan = len(_PLANS) - 2  # it knows no filter; git would ask it for ever
            if _REFUSED.search(error.said) or not _decided(error.said):
                return False
            raise
        return True

    def _missing(self) -> set[str]:
        """Blobs of the commit that were left out when it was fetched."""
        said = self._git("rev-list", "--objects", "--no-walk", "--missing=print", self.commit)
        return {line[1:] for line in said.splitlines() if line.startswith("?")}

    def _git(self, *arguments: str) -> str:
        return run_git(self.repository, arguments, cwd=self.folder)

    def _fetch(self, *arguments: str, stdin: str = "") -> str:
        words = ["fetch", "--no-tags", "--no-write-fetch-head", "--recurse-submodules=no", *arguments]
        return run_git(self.repository, words, cwd=self.folder, stdin=stdin, progress=self.progress)


_PLANS = (
    ("--depth=1", "--filter=blob:none", "origin", "{commit}"),
    ("--depth=1", "origin", "{commit}"),
    ("--filter=blob:none", "origin", "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"),
    ("origin", "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"),
)
"""From the least data to what every server can do; the last two for those that give no single commit."""
_BLOBS = ("--filter=blob:none", "--stdin", "origin")


def _patiently(call: Callable[[], str]) -> str:
    """Call again when the connection was cut."""
    for attempt in range(_TRIES):
        try:
            return call()
        except GitError as error:
            again = _CUT.search(error.said) and not _REFUSED.search(error.said)
            if attempt == _TRIES - 1 or not again or _AUTH.search(error.said):
                raise
            time.sleep(_FIRST_WAIT_S * 2**attempt)
    raise AssertionError


def _decided(said: str) -> bool:
    """Whether no other way of fetching can help."""
    return bool(_AUTH.search(said) or _ABSENT.search(said) or _CUT.search(said))


@contextlib.contextmanager
def _translated(repository: GitUrl) -> Iterator[None]:
    """Turn what git says into a sentence with a next step."""
    try:
        yield
    except GitError as error:
        last = _last_line(error.said)
        if _AUTH.search(error.said):
            raise TaskError(
                f"{repository.url}: access was refused ({last}); set up a git credential helper or an ssh key"
            ) from None
        if _ABSENT.search(error.said):
            raise TaskError(f"{repository.url}: there is no git repository at this address") from None
        raise FetchError(f"{repository.url}: could not be fetched ({last}); try again later") from None


def _last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    told = [line for line in lines if line.lower().startswith(("fatal:", "error:", "remote:"))]
    return (told or lines or ["no reason was given"])[0].partition(": ")[2][:200] or "no reason was given"


def run_git(
    repository: GitUrl,
    arguments: Sequence[str],
    *,
    cwd: Path | None = None,
    stdin: str = "",
    progress: Progress | None = None,
    timeout_s: float | None = None,
) -> str:
    """What git prints; GitError when it fails. The one way to run git on what others wrote."""
    words = [arguments[0], *(("--progress",) if progress else ()), *arguments[1:]]
    try:
        with subprocess.Popen(
            ["git", *words],
            cwd=cwd,
            env=_environment(repository),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # without a terminal, ssh cannot ask for anything either
        ) as process:
            try:
                out, said = _talk(process, stdin.encode(), progress, timeout_s)
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
    except subprocess.TimeoutExpired:
        raise GitError(f"fatal: it did not end within {timeout_s:g} s") from None
    except FileNotFoundError:
        raise UsageError("datasets are fetched with git, which is not installed here") from None
    if process.returncode:
        raise GitError(said.decode(errors="replace"))
    return out.decode(errors="surrogateescape")


def _talk(
    process: subprocess.Popen[bytes], stdin: bytes, progress: Progress | None, timeout_s: float | None
) -> tuple[bytes, bytes]:
    if not progress:
        return process.communicate(stdin, timeout_s)
    assert process.stdin
    assert process.stderr
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(stdin)
        process.stdin.close()
    said = b""
    while chunk := process.stderr.read1(4096):  # type: ignore[attr-defined]  # a pipe is buffered
        said += chunk
        progress(re.split(rb"[\r\n]", said.rstrip())[-1].decode(errors="replace"))
    assert process.stdout
    return process.stdout.read(), said


def _environment(repository: GitUrl) -> dict[str, str]:
    """Never asks, runs no hook, speaks only the usual protocols; a password travels in no argument."""
    config = [
        ("core.hooksPath", os.devnull),
        ("core.fsmonitor", "false"),
        ("protocol.ext.allow", "never"),
        ("gc.auto", "0"),
        ("maintenance.auto", "false"),
        ("fetch.recurseSubmodules", "false"),
        ("http.lowSpeedLimit", "1000"),
        ("http.lowSpeedTime", "60"),
        ("credential.interactive", "false"),
    ]
    if repository.foreign:
        environment = {name: os.environ[name] for name in _FOR_STRANGERS if name in os.environ}
        environment |= {"HOME": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
        config += _foreign_config(repository)
        protocols = "https:http"
    else:
        given = host_environment(*OF_GIT, network=True)
        environment = {name: value for name, value in given.items() if name not in _LOCAL}
        protocols = "file" if repository.scheme == "file" else "https:http:ssh"
    if repository.credentials:
        host = repository.url.split("/")[2]
        header = base64.b64encode(repository.credentials.encode()).decode()
        config.append((f"http.{repository.scheme}://{host}/.extraHeader", f"Authorization: Basic {header}"))
    first = int(environment.get("GIT_CONFIG_COUNT") or 0)
    for at, (key, value) in enumerate(config, first):
        environment |= {f"GIT_CONFIG_KEY_{at}": key, f"GIT_CONFIG_VALUE_{at}": value}
    return environment | {
        "GIT_CONFIG_COUNT": str(first + len(config)),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": protocols,
        "SSH_ASKPASS_REQUIRE": "never",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "LC_ALL": "C",
    }


def _foreign_config(repository: GitUrl) -> list[tuple[str, str]]:
    """Keep git at the address that was checked: no redirect, no second server, no name looked up."""
    from yarl import URL

    config = [
        ("http.followRedirects", "false"),  # which covers alternates that a server names too
        ("http.proxy", str(proxy_for(URL(repository.url)) or "")),
        ("transfer.bundleURI", "false"),
        ("fetch.uriProtocols", ""),
        ("credential.helper", ""),
    ]
    return [*config, *([("http.curloptResolve", repository.pin)] if repository.pin else [])]
