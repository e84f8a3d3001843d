"""Git's own digest of a folder, computed from the files on disk: how a fetched task is checked."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from proctor.errors import TaskError

FILE, PROGRAM, LINK, FOLDER, SUBMODULE = "100644", "100755", "120000", "040000", "160000"
_CHUNK = 1 << 20


def tree_digest(folder: Path, algorithm: str = "sha1") -> str:
    """The digest that git gives to a folder with this content: names, execute bits and bytes."""
    return _tree(folder, algorithm).hex()


def file_digest(file: Path, algorithm: str = "sha1") -> str:
    """The digest that git gives to a file or link with this content."""
    return _blob(file, file.lstat(), algorithm).hex()


def algorithm_of(digest: str) -> str:
    """Which hash a repository uses, from the length of its digests."""
    return "sha1" if len(digest) == 40 else "sha256"


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
        return LINK
    if not stat.S_ISREG(info.st_mode):
        raise TaskError(f"{path}: neither a file nor a folder nor a link")
    return PROGRAM if info.st_mode & stat.S_IXUSR else FILE


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
