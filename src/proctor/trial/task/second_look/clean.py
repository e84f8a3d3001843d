"""Copy a saved state without some of its changes. The state is hostile: it is parsed, never unpacked here."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from proctor.errors import SandboxError
from proctor.trial.task.second_look.changes import clean_path
from proctor.trial.task.second_look.setting import Undo
from proctor.trial.task.state_tar import is_opaque

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
            _write(out, member, undo.content)


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
        _write_large(archive, out, member)
        return
    source = dropped.get(clean_path(member.linkname)) if member.islnk() else None
    if source is not None:
        data = archive.extractfile(source)
        _write(out, source, data.read() if data else b"", name=member.name)
        return
    out.addfile(member, archive.extractfile(member) if member.isreg() else None)


def _write_large(archive: tarfile.TarFile, out: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    entry = tarfile.TarInfo(member.name)
    entry.mode, entry.uid, entry.gid, entry.mtime = member.mode, member.uid, member.gid, member.mtime
    entry.size = member.size
    out.addfile(entry, archive.extractfile(member))


def _write(out: tarfile.TarFile, like: tarfile.TarInfo, content: bytes, *, name: str = "") -> None:
    """A plain file with the owner and mode of another member."""
    entry = tarfile.TarInfo(name or like.name)
    entry.mode, entry.uid, entry.gid, entry.mtime = like.mode, like.uid, like.gid, like.mtime
    entry.size = len(content)
    out.addfile(entry, io.BytesIO(content))
