"""Take secrets out of files: their content and their names, and the files inside a saved state.

A file is read once to see whether there is anything to take out, and is written again only then.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO

from proctor.trial.redact import Redactor

_CHUNK = 1 << 20
MAX_MEMBER_BYTES = 32 << 20
"""A larger file of a saved state that holds a secret is withheld as a whole."""
WITHHELD = b"[this file was withheld: it holds a secret and is too large to be rewritten]\n"
_PART = ".redacting"


def clean_file(path: Path, redactor: Redactor) -> bool:
    """Rewrite a plain file without its secrets; whether there were any."""
    if not redactor or not redactor.found_in(_chunks(path)):
        return False
    part = path.with_name(path.name + _PART)
    try:
        with part.open("xb") as sink:
            os.fchmod(sink.fileno(), stat.S_IMODE(path.stat().st_mode))
            stream = redactor.stream()
            for chunk in _chunks(path):
                sink.write(stream.feed(chunk))
            sink.write(stream.end())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return True


def clean_folder(folder: Path, redactor: Redactor, skip: Collection[str] = ()) -> int:
    """The same for every plain file below a folder, and for names; how many were changed.

    Nothing is followed, and entries of the folder that are to be skipped stay as they are.
    """
    changed = 0
    for path in sorted(folder.iterdir()) if redactor and folder.is_dir() else ():
        if path.name in skip:
            continue
        if not path.is_symlink():
            if path.is_dir():
                changed += clean_folder(path, redactor)
            elif path.is_file():
                changed += clean_file(path, redactor)
        clean = redactor.text(path.name).replace("/", "_")
        if clean != path.name:
            _rename(folder, path.name, clean)
            changed += 1
    return changed


def clean_state(state: Path, redactor: Redactor) -> int:
    """Rewrite a saved state without its secrets; how many of its entries were changed."""
    if not redactor or not redactor.found_in(_chunks(state)):
        return 0
    part = state.with_name(state.name + _PART)
    changed = 0
    try:
        with (
            tarfile.open(state, errorlevel=1) as source,
            tarfile.open(part, "w", format=tarfile.PAX_FORMAT) as target,
        ):
            for member in source:
                changed += _copy(source, member, target, redactor)
        part.replace(state)
    finally:
        part.unlink(missing_ok=True)
    return changed


def _copy(
    source: tarfile.TarFile, member: tarfile.TarInfo, target: tarfile.TarFile, redactor: Redactor
) -> bool:
    before = (member.name, member.linkname)
    member.name, member.linkname = redactor.text(member.name), redactor.text(member.linkname)
    member.pax_headers = {
        key: redactor.text(value)
        for key, value in member.pax_headers.items()
        if key not in {"path", "linkpath", "size"} and not key.startswith("GNU.sparse")
    }
    changed = before != (member.name, member.linkname)
    if not member.isreg():
        target.addfile(member)
        return changed
    file = source.extractfile(member)
    assert file is not None
    member.type = tarfile.REGTYPE
    if member.size > MAX_MEMBER_BYTES:
        content, dirty = _large(file, redactor)
    else:
        data = file.read()
        clean = redactor.whole(data)
        content, dirty = io.BytesIO(clean), clean != data
        member.size = len(clean)
    if content is None:
        member.size = len(WITHHELD)
        content = io.BytesIO(WITHHELD)
    target.addfile(member, content)
    return changed or dirty


def _large(file: IO[bytes], redactor: Redactor) -> tuple[IO[bytes] | None, bool]:
    """The file as it is, or nothing where it holds a secret."""
    if redactor.found_in(iter(lambda: file.read(_CHUNK), b"")):
        return None, True
    file.seek(0)
    return file, False


def _chunks(path: Path) -> Iterator[bytes]:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk


def _rename(folder: Path, name: str, clean: str) -> None:
    target, number = clean, 1
    while os.path.lexists(folder / target):
        number += 1
        target = f"{clean}.{number}"
    (folder / name).rename(folder / target)
