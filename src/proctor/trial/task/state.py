"""Read a saved state, which is a tar of everything an agent changed, and make a patch of it.

The state is hostile: it is parsed and never unpacked here.
"""

from __future__ import annotations

import io
import posixpath
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from proctor.bounded_diff import Effort, unified_diff

MAX_FILE_BYTES = 1 << 20
MAX_PATCH_BYTES = 8 << 20
MAX_FILES = 2_000
_ODD = re.compile(r'[\x00-\x1f"\\\x7f\udc80-\udcff]')
_WHITEOUT = ".wh."
"""How a layer marks a removed file; an overlay does it by a device of characters."""

Base = Callable[[str], bytes | None]
"""The content of a path before the agent started; None when it did not exist."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of the saved state, relative to the root."""

    path: str
    kind: str
    """file, folder, link, pipe, or gone for what was removed"""
    size: int = 0
    opaque: bool = False
    """A folder that hides what the image has there."""
    read: Callable[[], bytes] = field(default=bytes, compare=False)
    """The content of a file; works until the next entry is asked for."""


def entries(state: Path | bytes) -> Iterator[Entry]:
    """Every path, in order; of a file, or of one that was read already."""
    with (
        io.BytesIO(state) if isinstance(state, bytes) else state.open("rb") as stream,
        tarfile.open(fileobj=stream, mode="r:") as archive,
    ):
        for member in archive:
            path, kind = clean_path(member.name), _kind(member)
            folder, name = posixpath.split(path)
            if name.startswith(_WHITEOUT):
                path, kind = posixpath.join(folder, name.removeprefix(_WHITEOUT)), "gone"
            if path:
                size = member.size if kind == "file" else 0
                yield Entry(path, kind, size, is_opaque(member), partial(_content, archive, member))


def clean_path(name: str) -> str:
    """A name of the archive as a path relative to the root."""
    return posixpath.normpath(f"/{name}").lstrip("/")


def is_opaque(member: tarfile.TarInfo) -> bool:
    """Whether a folder hides what the image has there."""
    return any(name.endswith("overlay.opaque") and value == "y" for name, value in member.pax_headers.items())


def _kind(member: tarfile.TarInfo) -> str:
    if member.isfile():
        return "file"
    if member.isdir():
        return "folder"
    if member.ischr():
        return "gone"
    return "link" if member.issym() or member.islnk() else "pipe"


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    return file.read() if file else b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """What changed under one folder."""

    patch: str
    counts: Mapping[str, int]
    """added, modified, deleted; left_out: files that were too large, binary or too many for the patch."""


def diff_state(state: Path | bytes, workdir: str, base: Base, effort: Effort | None = None) -> Diff:
    """Compare every file of a saved state below `workdir` with what was there before.

    The work is bounded over all files: see `bounded_diff`.
    """
    parts: list[str] = []
    counts = {"added": 0, "modified": 0, "deleted": 0, "left_out": 0}
    size, effort = 0, effort or Effort()
    prefix = f"{workdir.strip('/')}/".lstrip("/")
    for entry in entries(state):
        if not entry.path.startswith(prefix):
            continue
        change = _change(entry, entry.path[len(prefix) :], base, effort)
        if change is None:
            continue
        kind, text = change
        counts[kind] += 1
        if not text or size + len(text) > MAX_PATCH_BYTES or len(parts) > MAX_FILES:
            counts["left_out"] += 1
            continue
        size += len(text)
        parts.append(text)
    return Diff(patch="".join(parts), counts=counts)


def _change(entry: Entry, name: str, base: Base, effort: Effort) -> tuple[str, str] | None:
    """(kind, patch) of one entry; None when it changed nothing that a patch shows."""
    if entry.kind not in {"file", "gone"}:
        return None
    before = base(entry.path)
    if entry.kind == "gone":
        return None if before is None else ("deleted", _patch(name, before, None, effort))
    kind = "added" if before is None else "modified"
    if entry.size > MAX_FILE_BYTES:
        return kind, ""
    after = entry.read()
    return None if after == before else (kind, _patch(name, before, after, effort))


def _patch(name: str, before: bytes | None, after: bytes | None, effort: Effort) -> str:
    """A unified diff; empty for binary or very large content."""
    contents = (before or b"", after or b"")
    if any(len(each) > MAX_FILE_BYTES or b"\0" in each[:8192] for each in contents):
        return ""
    old, new = (each.decode(errors="replace").splitlines(keepends=True) for each in contents)
    lines: Iterable[str]
    if before is None and new:  # all of it is new: there is nothing to compare
        count = f",{len(new)}" if len(new) > 1 else ""
        lines = [
            "--- /dev/null\n",
            f"+++ {_quoted('b', name)}\n",
            f"@@ -0,0 +1{count} @@\n",
            *(f"+{line}" for line in new),
        ]
    else:
        target = "/dev/null" if after is None else _quoted("b", name)
        lines = unified_diff(old, new, (_quoted("a", name), target), effort=effort)
    mode = (
        "new file mode 100644\n" if before is None else "deleted file mode 100644\n" if after is None else ""
    )
    header = f"diff --git {_quoted('a', name)} {_quoted('b', name)}\n{mode}"
    return header + "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _quoted(side: str, name: str) -> str:
    """A path as git writes it: in quotes when it has a byte that is not UTF-8 or would end the line."""
    place = f"{side}/{name}"
    if not _ODD.search(place):
        return place
    return '"' + _ODD.sub(lambda found: _escaped(found[0]), place) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return "".join(f"\\{byte:03o}" for byte in character.encode(errors="surrogateescape"))
