"""`series.jsonl`: one row per attempt, appended and flushed as it ends, so that a kill loses nothing.

A row is flat: the planned trial's fields, the attempt's fields and `counts`. A last line without its
newline is what a kill leaves; readers pass over it and `Series` cuts it off before it appends.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec
from msgspec.structs import asdict

from proctor.disk import write_all
from proctor.errors import UsageError
from proctor.model.plan import PlannedTrial
from proctor.model.record import SCHEMA_VERSION, AttemptRecord, AttemptRow
from proctor.runfolder.files import decode, encode, regular_file, write_error
from proctor.store.rows import decoder

NAME = "series.jsonl"
MAX_LINE_BYTES = 1 << 28
T = TypeVar("T")

_WHERE = re.compile(r"(?s)(.*) - at `\$\.?(.*?)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")


class _Mark(msgspec.Struct, gc=False):
    """What a row says beside its trial and its attempt."""

    counts: bool
    run_id: str = ""


def encode_row(run_id: str, row: AttemptRow) -> bytes:
    """One line of the file."""
    data = {
        "schema_version": SCHEMA_VERSION,
        "run_id": run_id,
        **asdict(row.trial),
        **row.record.to_mapping(),
        "counts": row.counts,
    }
    return encode(data).encode("utf-8", "replace") + b"\n"


def decode_row(
    line: bytes,
    place: str,
    *,
    run_id: str | None = None,
    trials: Mapping[str, PlannedTrial] | None = None,
) -> AttemptRow:
    """One line read back, every field checked."""
    mark = read_line(line, _Mark, place)
    if run_id is not None and mark.run_id != run_id:
        raise UsageError(f"{place}: a row of run {mark.run_id!r:.80} in the folder of run {run_id!r}")
    record = read_line(line, AttemptRecord, place)
    trial = (trials or {}).get(record.key) or read_line(line, PlannedTrial, place)
    return AttemptRow(record, counts=mark.counts, trial=trial)


def read_series(
    folder: Path, *, run_id: str | None = None, trials: Mapping[str, PlannedTrial] | None = None
) -> Iterator[AttemptRow]:
    """The rows of a run folder's series; none when it has no such file. A torn last line is passed over.

    With `trials`, by key, a row's trial is taken from there and not read again from every row.
    """
    if not os.path.lexists(folder / NAME):
        return
    path = regular_file(folder, NAME)
    with path.open("rb") as stream:
        for number, line in enumerate(_lines(stream, path), 1):
            yield decode_row(line, f"{path}:{number}", run_id=run_id, trials=trials)


def _lines(stream: BinaryIO, path: Path) -> Iterator[bytes]:
    """The whole lines; a torn last line is passed over."""
    number = 0
    while (line := stream.readline(MAX_LINE_BYTES)).endswith(b"\n"):
        number += 1
        yield line
    if len(line) >= MAX_LINE_BYTES:
        raise UsageError(f"{path}:{number + 1}: a line of more than {MAX_LINE_BYTES >> 20} MiB")


class Series:
    """The file, open for appending. Rows given together are one write; one that fails is taken back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644
            )
        except OSError as error:
            raise write_error(path, error) from error
        self.size = _mend(self._fd)

    def append(self, lines: bytes) -> None:
        """Add one row or several; on a full disk the file is as it was before."""
        try:
            write_all(self._fd, lines)
        except OSError as error:
            os.ftruncate(self._fd, self.size)
            raise write_error(self.path, error) from error
        self.size += len(lines)

    def close(self) -> None:
        """Let go of the file. Safe to call twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _mend(fd: int) -> int:
    """Remove an incomplete last line; returns the remaining size."""
    end = size = os.fstat(fd).st_size
    block = 1 << 16
    while end > 0:
        start = max(0, end - block)
        chunk = os.pread(fd, end - start, start)
        cut = chunk.rfind(b"\n")
        if cut >= 0:
            end = start + cut + 1
            break
        end = start
    if end != size:
        os.ftruncate(fd, end)
    return end


def read_line(line: bytes, kind: type[T], place: str) -> T:
    """What a type says of a JSON object; fields of a later version are passed over."""
    try:
        return decoder(kind).decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Said better by the careful reader, which also takes the lone surrogates that Python writes.
        return checked(decode(line, place), kind, place)


def checked(data: Any, kind: type[T], place: str) -> T:
    """The same of decoded JSON; where it is wrong, the error says which field is."""
    if not isinstance(data, dict):
        raise UsageError(f"{place}: a JSON object is expected here")
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{place}: {_sentence(str(error))}") from None


def _sentence(message: str) -> str:
    """Msgspec's message, with the field first."""
    where = _WHERE.fullmatch(message)
    said, field = where.groups() if where else (message, "")
    if missing := _MISSING.fullmatch(said):
        return f"'{'.'.join(filter(None, (field, missing[1])))}' is missing"
    said = said[:1].lower() + said[1:]
    return f"'{field}': {said}" if field else said
