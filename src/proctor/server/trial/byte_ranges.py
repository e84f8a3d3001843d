"""Parts of files by byte range, as text that no browser takes for anything else."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import BinaryIO
from urllib.parse import quote

from starlette.responses import Response

from proctor.server.problem import Problem

MOST_BYTES = 1 << 20
"""Of one answer."""
PAGE_BYTES = 64 << 10
"""When nobody says how much."""
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)
HARMLESS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""What an agent wrote is never a page, a script or a style sheet."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some bytes of a file."""

    data: bytes
    offset: int
    size: int
    by_header: bool = False
    """Whether a Range header asked for it: then the answer is 206."""


def read_part(
    file: BinaryIO,
    size: int,
    *,
    offset: int = 0,
    length: int | None = None,
    tail: int | None = None,
    wanted: str | None = None,
) -> Part:
    """The part that is asked for, at most 1 MiB. Nothing before it is read, however large the file is."""
    by_header = False
    if wanted is not None and (found := _RANGE.fullmatch(wanted.strip())) and any(found.groups()):
        by_header = True
        first, last = found.groups()
        offset = int(first) if first else max(0, size - int(last))
        length = int(last) - offset + 1 if first and last else None if first else int(last)
        if offset >= size or (length is not None and length < 0):
            raise Problem(
                "range_refused", f"The file has {size} bytes", headers={"Content-Range": f"bytes */{size}"}
            )
        length = MOST_BYTES if length is None else length
    elif tail is not None:
        offset, length = max(0, size - min(tail, MOST_BYTES)), min(tail, MOST_BYTES)
    length = min(PAGE_BYTES if length is None else length, MOST_BYTES)
    _go_to(file, min(offset, size))
    return Part(file.read(length), min(offset, size), size, by_header)


def _go_to(file: BinaryIO, offset: int) -> None:
    if file.seekable():
        file.seek(offset)
        return
    while offset > 0 and (piece := file.read(min(offset, MOST_BYTES))):
        offset -= len(piece)


def part_of(part: Part, name: str) -> Response:
    """A part as an answer: plain text, with how large the whole is."""
    saved_as = quote(name.rpartition("/")[2] or "file", safe="")
    headers = {
        **HARMLESS,
        "X-Log-Size": str(part.size),
        "X-Log-Offset": str(part.offset),
        "Accept-Ranges": "bytes",
        "Content-Disposition": f"inline; filename*=UTF-8''{saved_as}",
    }
    if part.by_header:
        end = part.offset + len(part.data) - 1
        headers["Content-Range"] = f"bytes {part.offset}-{end}/{part.size}"
    return Response(
        part.data, 206 if part.by_header else 200, media_type="text/plain; charset=utf-8", headers=headers
    )
