"""The content hash of a task, computed once and remembered while no file changes.

The digest is over names, execute bits and bytes, so it is the same on any machine. What is remembered
is keyed by every file's size and modification time: looking costs a `stat` per file, not a read.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from proctor.disk import read_small
from proctor.errors import TaskError

ALWAYS_IGNORED = (".git", ".proctor", "__pycache__", ".DS_Store", "*.pyc")
_FORMAT = b"proctor-task-1\n"


def task_digest(folder: Path, cache_dir: Path | None = None) -> str:
    """The sha256 of a task folder's content."""
    files = sorted(_files(folder))
    if not cache_dir:
        return _hash(folder, files)
    fingerprint = _fingerprint(folder, files)
    place = cache_dir / "digests" / hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:32]
    try:
        remembered = json.loads(place.read_text())
        if remembered["fingerprint"] == fingerprint:
            return str(remembered["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # nothing usable is remembered: hash again
    digest = _hash(folder, files)
    keep(place, json.dumps({"fingerprint": fingerprint, "digest": digest}).encode())
    return digest


def ignored(relative: str, patterns: tuple[str, ...]) -> bool:
    """Whether a path, or a folder it is in, matches a pattern of `.harborignore`."""
    names, paths = _compiled(patterns)
    parts = relative.split("/")
    if any(map(names.fullmatch, parts)):
        return True
    return bool(paths.pattern) and any(
        paths.fullmatch("/".join(parts[:count])) for count in range(1, len(parts) + 1)
    )


@lru_cache(maxsize=256)
def _compiled(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Patterns without a slash, which name any part of a path, and all of them for the path from the top."""
    plain = [pattern.strip("/") for pattern in patterns]
    names = "|".join(fnmatch.translate(each) for each in plain if "/" not in each)
    paths = "|".join(fnmatch.translate(each) for each in plain if "/" in each)
    return re.compile(names), re.compile(paths)


def ignore_patterns(folder: Path) -> tuple[str, ...]:
    """What a task leaves out of itself."""
    try:
        lines = read_small(folder / ".harborignore", 1 << 20).decode().splitlines()
    except (OSError, UnicodeDecodeError):
        return ALWAYS_IGNORED
    return (*ALWAYS_IGNORED, *(line.strip() for line in lines if line.strip() and not line.startswith("#")))


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    patterns = ignore_patterns(folder)
    for root, folders, names in os.walk(folder):
        base = os.path.relpath(root, folder)
        prefix = "" if base == "." else f"{base}/"
        folders[:] = [each for each in folders if not ignored(prefix + each, patterns)]
        for name in names:
            relative = prefix + name
            if not ignored(relative, patterns):
                yield relative, (folder / relative).lstat()


def _fingerprint(folder: Path, files: list[tuple[str, os.stat_result]]) -> str:
    seen = hashlib.sha256(str(folder.resolve()).encode())
    for name, info in files:
        seen.update(f"{name}\0{info.st_size}\0{info.st_mtime_ns}\0{info.st_ino}\0{info.st_mode}\n".encode())
    return seen.hexdigest()


def _hash(folder: Path, files: list[tuple[str, os.stat_result]]) -> str:
    whole = hashlib.sha256(_FORMAT)
    for name, info in files:
        if stat.S_ISLNK(info.st_mode):
            kind, content = "link", hashlib.sha256((folder / name).readlink().as_posix().encode()).hexdigest()
        elif stat.S_ISREG(info.st_mode):
            with (folder / name).open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            kind = "exec" if info.st_mode & 0o100 else "file"
        else:
            raise TaskError(f"{folder / name}: a task may contain only files, folders and links")
        whole.update(f"{kind}\0{name}\0{content}\n".encode())
    return whole.hexdigest()


def keep(place: Path, content: bytes) -> None:
    """Write a file of a cache, whole or not at all. One that cannot be written only costs time."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
            file.write(content)
        Path(file.name).replace(place)
    except OSError:
        return
