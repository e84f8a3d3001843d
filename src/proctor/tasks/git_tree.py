"""Folders of one commit as files on disk: choose tasks, write their files, check them by git's own digest."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from proctor.errors import TaskError
from proctor.tasks.address import GitUrl
from proctor.tasks.archive import MARKERS
from proctor.tasks.git import Commit, Progress, Tree

_FILE, _PROGRAM, _LINK, _SUBMODULE = "100644", "100755", "120000", "160000"
_CHUNK = 1 << 20
_MOST_FILES = 1_000_000
_LFS = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A folder or file of a commit, and where it goes."""

    path: str
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A task's folder, or a file beside the tasks, with git's digest of its content."""

    place: str
    """Below `root`; empty for `root` itself."""
    digest: str
    is_folder: bool = True


def fetch_folder(
    repository: GitUrl, commit: str, path: str, target: Path, progress: Progress | None = None
) -> tuple[Part, ...]:
    """The tasks at or below a path of a commit, and the files beside them, under the same names."""
    with Commit(repository, commit, _objects(target), progress) as opened:
        tree = opened.tree()
        shown = f"{repository.url} at {commit[:12]}"
        _require_folder(tree, path, shown)
        wanted = _tasks_below(tree, path)
        if not _folders_of_tasks(tree, path):
            raise TaskError(f"{shown}: no task in '{path or '.'}'; a task folder has a task.toml")
        return _write(opened, tree, wanted, target, shown)


def fetch_tasks(
    repository: GitUrl,
    commit: str,
    wanted: Sequence[Wanted],
    target: Path,
    progress: Progress | None = None,
) -> tuple[Part, ...]:
    """Named folders of a commit."""
    with Commit(repository, commit, _objects(target), progress) as opened:
        tree = opened.tree()
        shown = f"{repository.url} at {commit[:12]}"
        for each in wanted:
            _require_folder(tree, each.path, shown)
        return _write(opened, tree, wanted, target, shown)


def _objects(target: Path) -> Path:
    """Where git keeps what it fetches until the files are written: beside the dataset's files."""
    return target.parents[1] / "objects"


def _require_folder(tree: Tree, path: str, shown: str) -> None:
    entry = tree.get(path)
    if not path or (entry and entry.kind == "tree"):
        return
    if entry and entry.mode == _SUBMODULE:
        raise TaskError(f"{shown}: '{path}' is a submodule; submodules are not followed")
    if entry:
        raise TaskError(f"{shown}: '{path}' is a file, not a folder")
    raise TaskError(f"{shown}: there is no folder '{path}'")


def _folders_of_tasks(tree: Tree, path: str) -> set[str]:
    """Folders at or below a path that hold a task, without those inside another task."""
    below = f"{path}/" if path else ""
    found = {
        each.rpartition("/")[0]
        for each, entry in tree.items()
        if entry.kind == "blob" and each.startswith(below) and each.rpartition("/")[2] in MARKERS
    }
    return {each for each in found if not any(_text(above) in found for above in _above(each))}


def _above(path: str) -> Iterable[PurePosixPath]:
    return PurePosixPath(path).parents if path else ()


def _tasks_below(tree: Tree, path: str) -> list[Wanted]:
    tasks = _folders_of_tasks(tree, path)
    beside = [
        each
        for each, entry in tree.items()
        if entry.kind == "blob" and each.rpartition("/")[0] == path and path not in tasks
    ]
    start = len(path) + 1 if path else 0
    return [Wanted(each, each[start:]) for each in sorted((*tasks, *beside))]


def _write(
    opened: Commit, tree: Tree, wanted: Sequence[Wanted], target: Path, shown: str
) -> tuple[Part, ...]:
    files = _files(tree, wanted, shown)
    if len(files) > _MOST_FILES:
        raise TaskError(f"{shown}: {len(files):,} files; at most {_MOST_FILES:,} are fetched")
    opened.fetch({tree[path].digest for path in files.values()})
    folders = {each.place for each in wanted if not each.path or tree[each.path].kind == "tree"}
    with opened.reader() as write:
        links = _write_files(tree, files, target, write)
    _refuse_pointers(target, files, folders, shown)
    for place in links:
        _make_link(target, place, folders, shown)
    parts = []
    for each in wanted:
        digest = tree[each.path].digest if each.path else opened.root_digest()
        part = Part(place=each.place, digest=digest, is_folder=each.place in folders)
        if digest_of(target / each.place, part) != digest:
            raise TaskError(f"{shown}: '{each.path}' does not match the commit; nothing was kept")
        parts.append(part)
    return tuple(parts)


def _files(tree: Tree, wanted: Sequence[Wanted], shown: str) -> dict[str, str]:
    """Where each file goes → its path in the commit. Names are checked before anything is written."""
    homes = {each.path: each.place for each in wanted}
    files: dict[str, str] = {}
    for path, entry in tree.items():
        home = next((each for each in (path, *map(_text, _above(path))) if each in homes), None)
        if home is None or entry.kind == "tree":
            continue
        check_name(path, shown)
        if entry.mode == _SUBMODULE:
            raise TaskError(f"{shown}: '{path}' is a submodule; submodules are not followed")
        rest = path[len(home) :].lstrip("/")
        files["/".join(filter(None, (homes[home], rest)))] = path
    return files


def _write_files(
    tree: Tree,
    files: Mapping[str, str],
    target: Path,
    write: Callable[[str, Path], None],
) -> list[str]:
    """Write plain files; the places of links, which hold their target as text for now."""
    links = []
    for place, path in files.items():
        file = target / place
        file.parent.mkdir(parents=True, exist_ok=True)
        write(tree[path].digest, file)
        if tree[path].mode == _LINK:
            links.append(place)
            continue
        file.chmod(0o755 if tree[path].mode == _PROGRAM else 0o644)
    return links


def _refuse_pointers(target: Path, files: Mapping[str, str], folders: Collection[str], shown: str) -> None:
    """A task whose file is elsewhere cannot run; what lies beside the tasks does not matter."""
    for place, path in files.items():
        in_a_task = "/" in place or "" in folders
        with (target / place).open("rb") as file:
            if in_a_task and file.read(len(_LFS)) == _LFS:
                raise TaskError(
                    f"{shown}: '{path}' is a pointer to a file in Git LFS, which is not fetched; "
                    "clone the repository with git-lfs and give its folder with -t"
                )


def _make_link(target: Path, place: str, tasks: Collection[str], shown: str) -> None:
    file = target / place
    leads = os.fsdecode(file.read_bytes())
    check_link(place, leads, tasks, shown)
    file.unlink()
    file.symlink_to(leads)


def digest_of(place: Path, part: Part) -> str:
    """The digest that git gives to what is on disk: names, execute bits and bytes."""
    algorithm = "sha1" if len(part.digest) == 40 else "sha256"
    found = _tree(place, algorithm) if part.is_folder else _blob(place, place.lstat(), algorithm)
    return found.hex()


def check_name(path: str, shown: str) -> None:
    """Refuse a name that no honest repository has."""
    for part in path.split("/"):
        if part in {"", ".", ".."} or part.lower() == ".git" or "\0" in part or len(os.fsencode(part)) > 255:
            raise TaskError(f"{shown}: '{path[:200]!r}' is not a name that can be fetched")


def check_link(path: str, target: str, tasks: Collection[str], shown: str) -> None:
    """Refuse a link that leads out of its task. `tasks` are the folders of tasks, empty for the top.

    Only leading `..` are allowed: behind another name they could start from wherever a second link leads.
    """
    parent = PurePosixPath(path).parent
    root = next((each for each in (parent, *parent.parents) if _text(each) in tasks), PurePosixPath())
    climbs = 0
    parts = target.split("/")
    while climbs < len(parts) and parts[climbs] == "..":
        climbs += 1
    if (
        target.startswith("/")
        or not target
        or ".." in parts[climbs:]
        or climbs > len(parent.relative_to(root).parts)
    ):
        raise TaskError(f"{shown}: the link '{path}' leads out of its task, to '{target[:200]}'")


def _text(path: PurePosixPath) -> str:
    return "" if str(path) == "." else str(path)


def _tree(folder: Path, algorithm: str) -> bytes:
    entries: list[tuple[bytes, bytes]] = []
    with os.scandir(folder) as found:
        for each in found:
            info = each.stat(follow_symlinks=False)
            name = os.fsencode(each.name)
            if stat.S_ISDIR(info.st_mode):
                digest = _tree(Path(each.path), algorithm)
                if digest != _digest(b"tree", b"", algorithm):  # git knows no empty folder
                    entries.append((name + b"/", b"40000 " + name + b"\0" + digest))
            else:
                mode = _mode(info, Path(each.path))
                digest = _blob(Path(each.path), info, algorithm)
                entries.append((name, mode.encode() + b" " + name + b"\0" + digest))
    return _digest(b"tree", b"".join(content for _, content in sorted(entries)), algorithm)


def _mode(info: os.stat_result, path: Path) -> str:
    if stat.S_ISLNK(info.st_mode):
        return _LINK
    if not stat.S_ISREG(info.st_mode):
        raise TaskError(f"{path}: neither a file nor a folder nor a link")
    return _PROGRAM if info.st_mode & stat.S_IXUSR else _FILE


def _blob(path: Path, info: os.stat_result, algorithm: str) -> bytes:
    if stat.S_ISLNK(info.st_mode):
        return _digest(b"blob", os.fsencode(path.readlink()), algorithm)
    seen = hashlib.new(algorithm, b"blob %d\0" % info.st_size, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            seen.update(chunk)
    return seen.digest()


def _digest(kind: bytes, content: bytes, algorithm: str) -> bytes:
    return hashlib.new(algorithm, b"%b %d\0" % (kind, len(content)) + content, usedforsecurity=False).digest()
