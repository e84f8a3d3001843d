"""Unpack an uploaded ZIP safely. The archive is hostile until every entry has been looked at.

Nothing is written until the whole directory of the archive has passed, and what is written goes to a
temporary folder that is renamed at the end: a refused archive leaves nothing behind.
"""

from __future__ import annotations

import lzma
import os
import re
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from proctor.errors import TaskError

MARKERS = ("task.toml", "tb_meta.json")
"""A folder with one of these is a task."""
DAMAGED = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OverflowError,
    RuntimeError,
    ValueError,
)
"""What `zipfile` raises when the bytes are not what they say."""
_MODES_KEPT = b"proctor: execute bits are kept"
"""The comment of an archive that `pack` made. In others bits that are missing may have been lost."""
_CHUNK = 1 << 20
_DEEP = 40
_CONTROL = re.compile(r"[\x00-\x1f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveLimits:
    """How large an archive may become."""

    total_bytes: int = 2 << 30
    entry_bytes: int = 1 << 30
    entries: int = 20_000
    ratio: float = 200.0
    """Unpacked over packed; small entries are exempt, text repeats itself."""
    ratio_floor_bytes: int = 10 << 20


def unpack(archive: Path, target: Path, limits: ArchiveLimits | None = None) -> Path:
    """Unpack into the new folder `target`; the folder of the task inside it."""
    limits = limits or ArchiveLimits()
    if target.exists():
        raise TaskError(f"{archive.name}: {target} already exists; unpack into a new folder")
    try:
        with zipfile.ZipFile(archive) as opened:
            entries = inspect_entries(opened, archive, limits)
            root = _task_root(archive, [name for name, info in entries.items() if not info.is_dir()])
            target.parent.mkdir(parents=True, exist_ok=True)
            workplace = Path(tempfile.mkdtemp(prefix=".unpack-", dir=target.parent))
            try:
                _extract(opened, archive, entries, workplace, limits)
                workplace.chmod(0o755)
                workplace.rename(target)
            except BaseException:
                shutil.rmtree(workplace, ignore_errors=True)
                raise
    except FileNotFoundError as error:
        raise TaskError(f"{archive}: no such file") from error
    except DAMAGED as error:
        raise TaskError(
            f"{archive.name}: not a ZIP, truncated or damaged ({error}); pack it again"
        ) from error
    return target / root


def inspect_entries(
    opened: zipfile.ZipFile, archive: Path, limits: ArchiveLimits
) -> dict[str, zipfile.ZipInfo]:
    """Every entry by its clean name, or the first reason to refuse the archive."""
    infos = opened.infolist()
    if not infos:
        raise TaskError(f"{archive.name}: the archive is empty")
    if len(infos) > limits.entries:
        raise TaskError(f"{archive.name}: {len(infos)} entries, at most {limits.entries} are allowed")
    entries: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        name = _clean_name(archive, info)
        if info.header_offset < 0:
            raise zipfile.BadZipFile(f"'{name}' would begin before the archive")
        if name in entries:
            raise TaskError(f"{archive.name}: '{name}' is in the archive twice")
        _refuse_special(archive, info, name)
        entries[name] = info
    _refuse_bombs(archive, infos, limits)
    _refuse_paths_through_files(archive, entries)
    return entries


def _clean_name(archive: Path, info: zipfile.ZipInfo) -> str:
    raw = info.orig_filename
    shown = raw.encode("unicode_escape").decode()[:200]
    if _CONTROL.search(raw):
        raise TaskError(f"{archive.name}: '{shown}' has a control character in its name")
    if "\\" in raw:
        raise TaskError(f"{archive.name}: '{shown}' has a backslash in its name; pack with forward slashes")
    path = PurePosixPath(raw)
    if path.is_absolute() or (len(raw) > 1 and raw[1] == ":"):
        raise TaskError(f"{archive.name}: '{shown}' is an absolute path")
    if ".." in path.parts:
        raise TaskError(f"{archive.name}: '{shown}' points outside the archive")
    if not path.parts:
        raise TaskError(f"{archive.name}: an entry has no name")
    if len(path.parts) > _DEEP or len(raw.encode()) > 1024 or max(len(p.encode()) for p in path.parts) > 255:
        raise TaskError(f"{archive.name}: '{shown[:60]}…' is too long or too deep")
    return str(path)


def _refuse_special(archive: Path, info: zipfile.ZipInfo, name: str) -> None:
    if info.flag_bits & 0x1:
        raise TaskError(f"{archive.name}: '{name}' is encrypted; pack without a password")
    mode = info.external_attr >> 16
    kind = stat.S_IFMT(mode)
    if kind == stat.S_IFLNK:
        raise TaskError(f"{archive.name}: '{name}' is a link; pack the file itself")
    if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
        raise TaskError(f"{archive.name}: '{name}' is a device, pipe or socket")


def _refuse_bombs(archive: Path, infos: Iterable[zipfile.ZipInfo], limits: ArchiveLimits) -> None:
    total = 0
    for info in infos:
        total += info.file_size
        if info.file_size > limits.entry_bytes:
            raise TaskError(f"{archive.name}: '{info.filename}' unpacks to {info.file_size} bytes")
        packed = max(1, info.compress_size)
        if info.file_size > limits.ratio_floor_bytes and info.file_size / packed > limits.ratio:
            raise TaskError(
                f"{archive.name}: '{info.filename}' unpacks to {info.file_size / packed:.0f} times its size; "
                f"more than {limits.ratio:.0f} looks like a ZIP bomb"
            )
    if total > limits.total_bytes:
        raise TaskError(f"{archive.name}: unpacks to {total} bytes, at most {limits.total_bytes} are allowed")


def _refuse_paths_through_files(archive: Path, entries: dict[str, zipfile.ZipInfo]) -> None:
    folders: set[str] = set()
    for name in entries:
        parent = name.rpartition("/")[0]
        while parent and parent not in folders:
            folders.add(parent)
            parent = parent.rpartition("/")[0]
    for name, info in entries.items():
        if name in folders and not info.is_dir():
            raise TaskError(f"{archive.name}: '{name}' is both a file and a folder")


def _task_root(archive: Path, files: list[str]) -> str:
    """Where the task is: at the top, or in the only folder there is."""
    if any(marker in files for marker in MARKERS):
        return "."
    below = {PurePosixPath(name).parts[0] for name in files if len(PurePosixPath(name).parts) > 1}
    roots = [top for top in sorted(below) if any(f"{top}/{marker}" in files for marker in MARKERS)]
    if len(roots) == 1:
        return roots[0]
    if roots:
        raise TaskError(
            f"{archive.name}: holds {len(roots)} tasks ({', '.join(roots[:3])} …); pack one per ZIP"
        )
    raise TaskError(f"{archive.name}: no task.toml at the top or one folder down")


def _extract(
    opened: zipfile.ZipFile,
    archive: Path,
    entries: dict[str, zipfile.ZipInfo],
    target: Path,
    limits: ArchiveLimits,
) -> None:
    """Write the entries, counting the bytes that really come out rather than those announced."""
    left = limits.total_bytes
    for name, info in entries.items():
        place = target / name
        if info.is_dir():
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        with opened.open(info) as source, place.open("xb") as sink:
            written = 0
            while chunk := source.read(_CHUNK):
                written += len(chunk)
                left -= len(chunk)
                if left < 0 or written > min(limits.entry_bytes, info.file_size):
                    raise TaskError(f"{archive.name}: '{name}' is larger than the archive says")
                sink.write(chunk)
        place.chmod(0o755 if _executable(place, info, kept=opened.comment == _MODES_KEPT) else 0o644)


def _executable(place: Path, info: zipfile.ZipInfo, *, kept: bool) -> bool:
    """ZIPs often lose the execute bit; scripts get it back, unless the archive says that it is as it was."""
    mode = info.external_attr >> 16
    if kept:
        return bool(mode & 0o100)
    if mode & 0o111 or place.suffix == ".sh":
        return True
    with place.open("rb") as file:
        return file.read(2) == b"#!"


def pack(folder: Path, archive: Path) -> None:
    """Pack a task folder the way `unpack` likes it: sorted, no links, execute bits kept."""
    with zipfile.ZipFile(archive, "x", zipfile.ZIP_DEFLATED) as opened:
        opened.comment = _MODES_KEPT
        for root, folders, files in os.walk(folder):
            folders.sort()
            for name in sorted(files):
                path = Path(root) / name
                if path.is_symlink() or not path.is_file():
                    raise TaskError(f"{path}: only plain files can be packed")
                opened.write(path, path.relative_to(folder))
