"""What an agent changed outside its own folders, from the saved state of its sandbox.

The state is hostile: it is parsed and never unpacked here.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor.sandbox.lower import Lower
from proctor.trial.task.diff import WHITEOUT
from proctor.trial.task.state_tar import members

MOST_SHOWN = 50
"""Of the system files that changed, so many are listed; all are counted."""
MAX_READ_BYTES = 64 << 20
_OWN = (
    "dev", "home", "logs", "media", "mnt", "oracle", "proc", "root", "run", "solution", "sys", "tests",
    "tmp", "var/cache", "var/log", "var/tmp",
)  # fmt: skip
"""Folders whose files are no system files, besides the working folder."""
_SHARED = ("", "bin", "etc", "lib", "opt", "sbin", "usr", "usr/local", "var")
"""A working folder of such a name does not make the system the agent's own."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of the saved state, relative to the root."""

    path: str
    kind: str
    """file, folder, link, pipe, or gone for what was removed"""
    size: int = 0
    opaque: bool = False
    """A folder that hides what the image has there."""


def entries(state: Path | bytes) -> list[Entry]:
    """Every path that the state holds."""
    found = []
    for member in members(state):
        path = clean_path(member.name)
        if not path:
            continue
        folder, name = posixpath.split(path)
        if name.startswith(WHITEOUT):
            found.append(Entry(posixpath.join(folder, name.removeprefix(WHITEOUT)), "gone"))
        else:
            kind = "gone" if member.kind == "device" else member.kind
            found.append(Entry(path, kind, member.size, member.opaque))
    return found


def contents(state: Path | bytes, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """The content of the plain files that are wanted, as far as they are small enough to be held."""
    for member in members(state):
        path = clean_path(member.name)
        if member.kind == "file" and member.size <= MAX_READ_BYTES and wanted(path):
            yield path, member.read()


def clean_path(name: str) -> str:
    """A name of the archive as a path relative to the root."""
    return posixpath.normpath(f"/{name}").lstrip("/")


def is_system(path: str, workdir: str) -> bool:
    """Whether a path is outside the folders that are the agent's own."""
    own = workdir.strip("/")
    if own not in _SHARED and below(path, own):
        return False
    return not any(below(path, each) for each in _OWN)


def below(path: str, folder: str) -> bool:
    """Whether a path is a folder or in it."""
    return path == folder or path.startswith(f"{folder}/")


def summary(found: Sequence[Entry], workdir: str, image: Lower | None) -> dict[str, Any]:
    """How many system files changed, and the first of them; empty when none did."""
    changed = [each for each in found if each.kind != "folder" and is_system(each.path, workdir)]
    if not changed:
        return {}
    first = [f"{_verb(each, image)} /{path_text(each.path)}" for each in changed[:MOST_SHOWN]]
    return {"count": len(changed), "first": first}


def path_text(path: str) -> str:
    """A path as text that can be stored and shown, whatever bytes it has."""
    return path.encode(errors="surrogateescape").decode(errors="replace")[:300]


def _verb(entry: Entry, image: Lower | None) -> str:
    if entry.kind == "gone":
        return "removed"
    if image is None:
        return "changed"
    return "changed" if image.kind(entry.path) else "added"
