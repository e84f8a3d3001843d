"""What an agent changed outside its own folders, and a copy of its saved state without some of that."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from proctor.errors import SandboxError
from proctor.sandbox.lower import Lower
from proctor.trial.task.state import Entry, clean_path, entries, is_opaque

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
class Undo:
    """One change that the second verdict does without."""

    entry: Entry
    why: str
    content: bytes | None = None
    """What is there instead; None: what the image has, or nothing."""
    only_mark: bool = False
    """The folder stays and no longer hides what the image has there."""
    harmless: bool = False
    """It was of no effect in the first verdict either."""


def contents(state: Path | bytes, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """The content of the plain files that are wanted, as far as they are small enough to be held."""
    for entry in entries(state):
        if entry.kind == "file" and entry.size <= MAX_READ_BYTES and wanted(entry.path):
            yield entry.path, entry.read()


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


_OPAQUE = "overlay.opaque"


def write_clean(state: Path, target: Path, undone: Sequence[Undo]) -> None:
    """The state without these changes; what the image had is there again where it is unpacked."""
    by_path = {each.entry.path: each for each in undone}
    try:
        with tarfile.open(state) as archive, tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as out:
            _copy(archive, out, by_path)
    except (tarfile.TarError, OSError, OverflowError) as error:
        raise SandboxError(f"the saved changes could not be read again: {error}") from error


def _copy(archive: tarfile.TarFile, out: tarfile.TarFile, by_path: Mapping[str, Undo]) -> None:
    dropped: dict[str, tarfile.TarInfo] = {}
    closed: tuple[str, ...] = ()
    for member in archive:
        path = clean_path(member.name)
        undo = by_path.get(path)
        if path.startswith(closed) if closed else False:
            continue
        if undo is None or undo.only_mark:
            _keep(archive, out, member, dropped, mark=undo is None)
            continue
        if member.isreg():
            dropped[path] = member
        if member.isdir():
            closed = (*closed, f"{path}/")
        if undo.content is not None:
            _write(out, member, io.BytesIO(undo.content), len(undo.content))


def _keep(
    archive: tarfile.TarFile,
    out: tarfile.TarFile,
    member: tarfile.TarInfo,
    dropped: dict[str, tarfile.TarInfo],
    *,
    mark: bool,
) -> None:
    """One member as it is; a second name of a file that was left out becomes a file of its own."""
    if member.isdir() and is_opaque(member):
        kept = {name: value for name, value in member.pax_headers.items() if not name.endswith(_OPAQUE)}
        member.pax_headers = {**kept, f"SCHILY.xattr.user.{_OPAQUE}": "y"} if mark else kept
    if member.issparse():  # written out in full: the file system makes holes of it again
        _write(out, member, archive.extractfile(member), member.size)
        return
    source = dropped.get(clean_path(member.linkname)) if member.islnk() else None
    if source is not None:
        _write(out, source, archive.extractfile(source), source.size, member.name)
        return
    out.addfile(member, archive.extractfile(member) if member.isreg() else None)


def _write(
    out: tarfile.TarFile, like: tarfile.TarInfo, content: IO[bytes] | None, size: int, name: str = ""
) -> None:
    """A plain file with the owner and mode of another member."""
    entry = tarfile.TarInfo(name or like.name)
    entry.mode, entry.uid, entry.gid, entry.mtime = like.mode, like.uid, like.gid, like.mtime
    entry.size = size
    out.addfile(entry, content)
