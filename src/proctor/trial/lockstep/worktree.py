"""Check a revision out next to the working tree, and always remove it again."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from proctor import owner
from proctor.errors import UsageError
from proctor.processes import host_environment

_PREFIX = "proctor-ab-"
_OURS = re.compile(rf"/{_PREFIX}(\d+-\d+-[0-9a-f]{{8}})-[^/]*/")


@dataclass(frozen=True, slots=True)
class Project:
    """The folder that holds the spec and the code: a repository, or the nearest thing to one."""

    root: Path
    is_repository: bool


def find_project(start: Path) -> Project:
    """The repository around a folder, else the nearest folder with a pyproject.toml, else the folder."""
    start = start.resolve()
    if shutil.which("git"):
        found = _git(start, "rev-parse", "--show-toplevel", check=False)
        if found.returncode == 0 and found.stdout.strip():
            return Project(Path(found.stdout.strip()).resolve(), is_repository=True)
    for folder in (start, *start.parents):
        if (folder / "pyproject.toml").is_file():
            return Project(folder, is_repository=False)
    return Project(start, is_repository=False)


def commit_of(project: Project, revision: str) -> str:
    """The full name of a commit."""
    if not project.is_repository:
        raise UsageError(
            f"'{revision}' is a revision, but {project.root} is not in a git repository; compare two folders "
            "with path:DIR, two environments with python:PATH or two parameter sets with params:NAME=VALUE"
        )
    found = _git(
        project.root, "rev-parse", "-q", "--verify", "--end-of-options", f"{revision}^{{commit}}", check=False
    )
    if found.returncode != 0:
        hint = f"; to compare the folder, write path:{revision}" if Path(revision).is_dir() else ""
        raise UsageError(f"'{revision}' is not a revision of {project.root}{hint}")
    return found.stdout.strip()


def is_clean(project: Project) -> bool:
    """Whether the tracked files are those of HEAD."""
    return not _git(project.root, "status", "--porcelain", "--untracked-files=no").stdout.strip()


@contextmanager
def worktrees(project: Project) -> Iterator[Worktrees]:
    """A place for checked-out revisions; all are gone afterwards, as are those a killed comparison left."""
    if project.is_repository:
        _sweep(project)
    _sweep_folders()
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{owner.owner_name()}-") as folder:
        trees = Worktrees(project, Path(folder).resolve())
        owner.hold(trees.folder)
        try:
            yield trees
        finally:
            for path in trees.paths:
                _remove(project, path)
            owner.release(trees.folder)


class Worktrees:
    """The revisions checked out for one comparison."""

    def __init__(self, project: Project, folder: Path) -> None:
        self.project = project
        self.folder = folder
        self.paths: list[Path] = []

    def check_out(self, commit: str, name: str) -> Path:
        """A folder with the files of a commit. Names of equal length keep the two sides alike."""
        path = self.folder / name
        self.paths.append(path)
        _change(self.project, "add", "--detach", "--force", str(path), commit)
        return path


def _sweep(project: Project) -> None:
    listed = _git(project.root, "worktree", "list", "--porcelain", check=False).stdout
    for line in listed.splitlines():
        name, _, path = line.partition(" ")
        ours = _OURS.search(f"{path}/")
        if name == "worktree" and ours and not owner.lives(ours[1], Path(path).parent):
            _remove(project, Path(path))
            shutil.rmtree(Path(path).parent, ignore_errors=True)


def _sweep_folders() -> None:
    """Remove what a killed comparison left: bytecode, links, folders of its processes."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        ours = _OURS.search(f"{folder}/")
        if ours and not owner.lives(ours[1], folder):
            shutil.rmtree(folder, ignore_errors=True)


def _remove(project: Project, path: Path) -> None:
    _change(project, "remove", "--force", "--force", str(path), check=False)
    if path.exists():
        shutil.rmtree(path, ignore_errors=True)
        _change(project, "prune", check=False)


def _change(project: Project, *arguments: str, check: bool = True) -> None:
    """Have git change its list of worktrees. Ctrl-C waits: half a change would break the repository."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        _git(project.root, "worktree", *arguments, check=check)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _git(folder: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        # Hooks of the repository are for people who check out, not for us.
        ["git", "-c", "core.hooksPath=/dev/null", *arguments],
        cwd=folder,
        # Without git's own variables: inside a hook they point at the repository of the hook.
        env=host_environment("XDG_CONFIG_HOME", extra={"GIT_OPTIONAL_LOCKS": "0"}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if check and done.returncode != 0:
        raise UsageError(f"git {arguments[0]} in {folder}: {done.stderr.strip() or 'failed'}")
    return done
