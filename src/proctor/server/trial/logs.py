"""The logs of an attempt: which there are, parts of them, and searching them. A log is never read whole.

While an attempt runs a long log is in pieces (see `render/trial_logs.py`), read here as if they were one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import RawIOBase
from typing import Any, BinaryIO, cast

from proctor.render.trial_logs import logs_in
from proctor.server.problem import Problem
from proctor.server.trial.attempt_files import AttemptFiles, is_text

PLACES = ("logs/", "artifacts/stdout.txt", "artifacts/stderr.txt")
_PARTS = (".1", ".2")
_CHUNK = 1 << 20
MOST_MATCHES = 200
MOST_SCANNED = 512 << 20
"""Bytes that one search looks at; then it says where to go on."""
_LONGEST_LINE = 500


def log_names(files: AttemptFiles) -> dict[str, list[str]]:
    """Name of a log → its files, in order. The verifier's comes last, as it does in time."""
    if files.live:
        return {
            log.name: list(_pieces(files, log.path.relative_to(files.folder).as_posix()))
            for log in logs_in(files.folder)
            if is_text(log.name)
        }
    found = [path for path in files.files if path.startswith(PLACES)]
    ordered = sorted(found, key=lambda path: (path.endswith("/eval.log"), path))
    names: dict[str, list[str]] = {}
    for path in ordered:
        names.setdefault(path.removeprefix("logs/").removeprefix("artifacts/"), [path])
    return names


def _pieces(files: AttemptFiles, path: str) -> Iterator[str]:
    yield path
    parts = [path + end for end in _PARTS if path + end in files.files]
    # The part that was written to last is the end; the other one, if there is one, is before it.
    yield from sorted(parts, key=lambda part: files.files[part].written_ns)


def listed_logs(files: AttemptFiles) -> dict[str, Any]:
    """Every log with its size."""
    logs = [
        {"name": name, "size": sum(_size(files, path) for path in paths), "live": files.live}
        for name, paths in log_names(files).items()
    ]
    return {"attempt": files.number, "live": files.live, "logs": logs}


def _size(files: AttemptFiles, path: str) -> int:
    found = files.files.get(path)
    return found.size if found else 0


@contextmanager
def opened_log(files: AttemptFiles, name: str) -> Iterator[tuple[BinaryIO, int]]:
    """A log to read from, and its size."""
    names = log_names(files)
    if name not in names:
        known = ", ".join(names) or "none"
        raise Problem("not_found", f"Attempt {files.number} has no log '{name[:200]}'; logs: {known}")
    with ExitStack() as stack:
        pieces = [(stack.enter_context(files.open(path)), _size(files, path)) for path in names[name]]
        if len(pieces) == 1:
            yield pieces[0]
        else:
            joined = _Joined(pieces)
            yield cast("BinaryIO", joined), joined.size


class _Joined(RawIOBase):
    """Several files, one after the other, as one."""

    def __init__(self, pieces: list[tuple[BinaryIO, int]]) -> None:
        self._pieces = pieces
        self._at = 0
        self.size = sum(size for _, size in pieces)

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        assert whence == 0
        self._at = offset
        return offset

    def read(self, size: int = -1) -> bytes:
        left = self.size - self._at if size < 0 else size
        found, start = [], 0
        for file, length in self._pieces:
            inside = self._at - start
            if left > 0 and 0 <= inside < length:
                file.seek(inside)
                data = file.read(min(left, length - inside))
                found.append(data)
                self._at += len(data)
                left -= len(data)
            start += length
        return b"".join(found)


def search(file: BinaryIO, q: str, place: str | None) -> dict[str, Any]:
    """Lines that have a text, with their number and where they begin; capitals make no difference.

    `next` is where to go on: `OFFSET.LINE`.
    """
    wanted = q.lower().encode()
    offset, line = _place(place)
    if offset:
        file.seek(offset)
    matches: list[dict[str, Any]] = []
    scanned, rest = 0, b""
    while len(matches) < MOST_MATCHES and scanned < MOST_SCANNED:
        piece = file.read(_CHUNK)
        scanned += len(piece)
        block = rest + piece
        end = block.rfind(b"\n") + 1 if piece and len(block) < 4 * _CHUNK else len(block)
        whole, rest = block[:end], block[end:]
        used = _matches(whole, wanted, offset, line, matches)
        line += whole.count(b"\n", 0, used)
        offset += used
        if used < len(whole):
            return {"matches": matches, "next": f"{offset}.{line}"}
        if not piece:
            return {"matches": matches, "next": None}
    return {"matches": matches, "next": f"{offset}.{line}"}


def _matches(block: bytes, wanted: bytes, offset: int, line: int, into: list[dict[str, Any]]) -> int:
    """Add the matching lines of a block; how much of it was looked at."""
    low, at, counted = block.lower(), 0, 0
    while (found := low.find(wanted, at)) >= 0:
        if len(into) >= MOST_MATCHES:
            return low.rfind(b"\n", 0, found) + 1
        start = low.rfind(b"\n", 0, found) + 1
        end = low.find(b"\n", found)
        end = len(block) if end < 0 else end
        line += low.count(b"\n", counted, start)
        counted = start
        begin = max(start, min(found - _LONGEST_LINE // 4, end - _LONGEST_LINE))
        text = block[begin : min(end, begin + _LONGEST_LINE)].decode(errors="replace")
        into.append({"line": line + 1, "offset": offset + start, "text": text})
        at = end + 1
    return len(block)


def _place(place: str | None) -> tuple[int, int]:
    if not place:
        return 0, 0
    offset, _, line = place.partition(".")
    if not (offset.isdecimal() and (line or "0").isdecimal()) or len(place) > 40:
        raise Problem("invalid", "from: give the 'next' of the search before")
    return int(offset), int(line or 0)
