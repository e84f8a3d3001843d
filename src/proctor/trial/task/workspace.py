"""What a run puts into the sandbox before the agent starts: a repository, removals, added files."""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from proctor.errors import SandboxError, TaskError, UsageError
from proctor.model.canonical import digest
from proctor.model.task import Repository, Task
from proctor.outbound import Reach
from proctor.sandbox.base import Root, Sandbox, end_processes, standing
from proctor.tasks.address import GitUrl, check_revision, foreign_url, git_url, redacted
from proctor.tasks.git import GitError, run_git
from proctor.tasks.overrides import additions, removals

HIDDEN = ("tb_meta.json", "diff.patch")
"""Files around the repository of a prepared task that hold its tests, and the author's own change."""
_GIT_TIMEOUT_S = 600
_UPWARDS = 'case "/${{{0}#"$d"}}/" in */./*|*/../*) true;; *) false;; esac'
"""Shell code: whether a match leads through `.` or `..`, which the pattern `.*` matches in some shells."""
_LOGS = ("/logs/agent", "/logs/artifacts")
"""Folders that agents and tests expect; made without running anything inside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """Changes to make in the working folder. The task's own folder is only ever read."""

    source: Path | None = None
    """A folder whose content is the workspace."""
    remove: tuple[str, ...] = ()
    """Paths and patterns: `*`, `?` and `[…]` as in a shell, `**` for any depth."""
    add: tuple[tuple[str, bytes | Path], ...] = field(default=())
    above: tuple[tuple[str, bytes | Path], ...] = field(default=())
    """What is laid into the folder that the working folder is in."""
    hide: tuple[str, ...] = ()
    """What the agent must not find there: the task's own tests."""
    replaces: bool = False
    """Whether it takes the place of what the image has in the working folder."""

    async def lay_out(self, sandbox: Sandbox, workdir: str, *, made: bool = False) -> None:
        """Put everything in its place. `made`: the image already has the working folder."""
        ready = standing(sandbox)
        if missing := [path for path in _LOGS if path not in ready]:
            await end_processes(sandbox, fresh=missing)
        if not made:
            await _must(
                sandbox, f"mkdir -p {shlex.quote(workdir)}", ("the working folder could not be created")
            )
        if self.replaces:
            await _must(sandbox, removal(workdir, ["*", ".[!.]*", "..?*"]), "files could not be removed")
        if self.source:
            await sandbox.upload(self.source, workdir)
        if self.remove:
            await _must(sandbox, removal(workdir, self.remove), "files could not be removed")
        parent = str(PurePosixPath(workdir).parent)
        await _add(sandbox, self.add, workdir)
        await _add(sandbox, self.above, parent)
        if self.hide:
            await _must(sandbox, removal(parent, self.hide), "files could not be removed")


async def lay_out(sandbox: Sandbox, workspace: Workspace, task: Task, root: Root, workdir: str) -> None:
    """Put into a sandbox all that a task and its run add to the image."""
    await workspace.lay_out(sandbox, workdir, made=workdir == root.workdir)
    if loose := task.environment.loose_files:
        await sandbox.upload(loose, workdir)


async def _add(sandbox: Sandbox, files: Sequence[tuple[str, bytes | Path]], folder: str) -> None:
    """Lay files over a folder. Links are copied as links: none is followed on this machine."""
    if not files:
        return
    with tempfile.TemporaryDirectory(prefix="proctor-add-") as scratch:
        for target, content in files:
            place = Path(scratch, target)
            place.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                place.write_bytes(content)
            elif content.is_dir():
                shutil.copytree(content, place, symlinks=True, dirs_exist_ok=True)
            else:
                shutil.copy2(content, place, follow_symlinks=False)
        await sandbox.upload(Path(scratch), folder)


def removal(folder: str, patterns: Sequence[str]) -> str:
    """The shell's line that removes what matches from a folder."""
    return " && ".join(_removal_line(folder, pattern) for pattern in patterns)


def is_removed(path: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns removes a path, or a folder that it is in."""
    parts = PurePosixPath(path).parts
    return any(
        _matches(parts[:length], _components(pattern))
        for pattern in patterns
        for length in range(1, len(parts) + 1)
    )


def _components(pattern: str) -> tuple[str, ...]:
    return PurePosixPath(pattern.replace("[^", "[!")).parts


def _removal_line(folder: str, pattern: str) -> str:
    if not re.search(r"[*?[]", pattern):
        return f"rm -rf -- {shlex.quote(f'{folder}/{pattern}'.rstrip('/'))}"
    return f"for d in {shlex.quote(folder)}; do {_removal(_components(pattern))}; done"


def _removal(components: Sequence[str]) -> str:
    """Shell code that removes what matches below `$d`; a folder of any depth is entered by `find`."""
    if "**" not in components:
        remove = f'{_UPWARDS.format("f")} || rm -rf -- "$f" || exit 1'
        return f'for f in "$d"/{_shell_pattern("/".join(components))}; do {remove}; done'
    at = components.index("**")
    head = "".join(f"/{_shell_pattern(each)}" for each in components[:at])
    rest = components[at + 1 :]
    inner = _removal(rest) if rest else "; ".join(_removal([each]) for each in ("*", ".[!.]*", "..?*"))
    # Inner folders first: what is removed has been visited. `{""}`: an outer `find` replaces every `{}`.
    visit = f'find "$h" -depth -type d -exec /bin/sh -c {shlex.quote(f"for d do {inner}; done")} sh {{""}} +'
    skip = f'{_UPWARDS.format("h")} || [ ! -d "$h" ] || [ -L "$h" ]'
    return f'for h in "$d"{head}; do {skip} || {visit} || exit 1; done'


def _shell_pattern(pattern: str) -> str:
    """A pattern for the shell, in which nothing but wildcards means anything."""
    words = re.split(r"(\[!?\]?[^\]]*\]|[*?])", pattern)
    return "".join(_wildcard(word) if at % 2 else shlex.quote(word) for at, word in enumerate(words) if word)


def _wildcard(word: str) -> str:
    if word in "*?":
        return word
    negation = "!" if word[1] == "!" else ""
    inside = word[1 + len(negation) : -1]
    return f"[{negation}{''.join(each if each == '-' else shlex.quote(each) for each in inside)}]"


def _matches(parts: Sequence[str], components: Sequence[str]) -> bool:
    if not components:
        return not parts
    if components[0] == "**":
        rest = components[1:]
        return bool(parts) if not rest else any(_matches(parts[at:], rest) for at in range(len(parts)))
    if not parts or (parts[0].startswith(".") and not components[0].startswith(".")):
        return False
    return fnmatchcase(parts[0], components[0]) and _matches(parts[1:], components[1:])


async def _must(sandbox: Sandbox, script: str, what: str) -> None:
    result = await sandbox.exec(["/bin/sh", "-c", script], cwd="/", user="root", timeout_s=60)
    if b"cannot run /bin/sh" in result.stderr:
        raise TaskError("the image has no /bin/sh, which every task needs; use an image with a shell")
    if result.exit_code:
        raise SandboxError(f"{what}: {result.stderr.decode(errors='replace').strip()}")


def workspace_for(
    task: Task, overrides: Mapping[str, Any], base: Path, cache_dir: Path, reach: Reach | None = None
) -> Workspace:
    """The workspace of a task under some overrides; a repository is fetched once per commit.

    `reach`: what may be fetched from, where a server runs a task on somebody's behalf.
    """
    repository = task.repository
    nested = bool(repository and repository.nested)
    inside = additions(overrides, base, ("inject_files", "overlay_repo_files"))
    above = additions(overrides, base, ("overlay_files",))
    own: list[tuple[str, bytes | Path]] = []
    if nested and (folder := task.path / "overlay_files").is_dir():
        own = [(each.name, each) for each in sorted(folder.iterdir()) if each.name not in HIDDEN]
    if repository and (folder := task.path / "overlay_repo_files").is_dir():
        inside.insert(0, ("", folder))
    return Workspace(
        source=_source(task, cache_dir, reach),
        remove=removals(overrides),
        add=tuple(inside if nested else [*inside, *above]),
        above=tuple([*own, *above] if nested else []),
        hide=HIDDEN if nested else (),
        replaces=nested and "repo" in overrides,
    )


def _source(task: Task, cache_dir: Path, reach: Reach | None) -> Path | None:
    repository = task.repository
    if repository is None or repository.in_image:
        return None
    is_fetched = task.path.resolve().is_relative_to((cache_dir / "datasets").resolve())
    if is_fetched and not repository.path and _is_local(repository.git_url):
        raise TaskError("repo.git_url: a task of a dataset cannot name a folder of this machine")
    source = repository.path or _fetched_once(repository, cache_dir, reach)
    return _below(source, repository.subdir) if repository.subdir else source


_FETCHING: dict[tuple[str, str], threading.Lock] = {}
"""By address and commit: what several trials wait for is fetched once."""


def _fetched_once(repository: Repository, cache_dir: Path, reach: Reach | None) -> Path:
    name = repository.git_url, repository.start_commit_sha or repository.branch
    with _FETCHING.setdefault(name, threading.Lock()):
        return fetch(repository, cache_dir, reach)


def commits(task: Task) -> dict[str, str]:
    """Which part of which history a task's repository is, for the record."""
    repository = task.repository
    names = ("branch", "start_commit_sha", "end_commit_sha", "subdir")
    found = {name: str(getattr(repository, name)) for name in names} if repository else {}
    return {name: value for name, value in found.items() if value}


def fetch(repository: Repository, cache_dir: Path, reach: Reach | None = None) -> Path:
    """A checkout of the start commit, kept by address and commit. Concurrent callers do not race.

    `reach`: what a stranger's repository may be fetched from; None: a person of this machine runs the task.
    """
    sha = "" if repository.start_commit_sha == "HEAD" else repository.start_commit_sha
    revision = sha or repository.branch or "HEAD"
    try:
        for text in filter(None, (revision, repository.branch)):
            check_revision(text, "repo")
        address = _address(repository.git_url, reach)
    except UsageError as error:
        raise TaskError(str(error)) from None
    parts = [repository.git_url, repository.branch, repository.start_commit_sha, repository.sparse_checkout]
    # What was fetched with somebody's keys is not for those who have none.
    name = digest(parts if reach is None else [*parts, "foreign"])
    target = cache_dir / "repositories" / name[:32]
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".clone-", dir=target.parent))
    try:
        _git(address, scratch, "clone", "--quiet", "--no-checkout", "--", address.url, ".")
        if repository.sparse_checkout:
            _git(address, scratch, "sparse-checkout", "set", "--end-of-options", *repository.sparse_checkout)
        _git(address, scratch, "checkout", "--quiet", revision, "--")
        try:
            scratch.rename(target)
        except OSError:
            if not target.exists():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def _address(written: str, reach: Reach | None) -> GitUrl:
    """Where a repository is. A folder of this machine is named by a person of it alone."""
    if reach is not None:
        return foreign_url(written, reach)
    if "://" not in written and _is_local(written):
        return GitUrl(url=f"file://{quote(str(Path(written).absolute()))}")
    return git_url(written)


def _is_local(written: str) -> bool:
    is_path = written.startswith(("/", ".")) or Path(written).exists()
    return written.lower().startswith("file:") or ("://" not in written and is_path)


def _git(repository: GitUrl, folder: Path, *arguments: str) -> None:
    try:
        run_git(repository, arguments, cwd=folder, timeout_s=_GIT_TIMEOUT_S)
    except GitError as error:
        raise TaskError(f"git {arguments[0]} failed: {redacted(error.said).strip()}") from None


def _below(folder: Path, subdir: str) -> Path:
    place = (folder / subdir).resolve()
    if not place.is_relative_to(folder.resolve()) or not place.is_dir():
        raise TaskError(f"repo.subdir: '{subdir}' is not a folder of the repository")
    return place
