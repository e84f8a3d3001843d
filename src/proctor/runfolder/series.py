"""`series.jsonl`: one row per attempt, appended and flushed as it ends, so that a kill loses nothing.

A row is flat: the planned trial's fields, the attempt's fields and `counts`. A last line without its
newline is what a kill leaves; readers pass over it and `Series` cuts it off before it appends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO

from proctor.errors import UsageError
from proctor.model.plan import PlannedTrial
from proctor.model.record import LATER_FIELDS, SCHEMA_VERSION, AttemptRecord
from proctor.runfolder.check import attempt_from, trial_from
from proctor.runfolder.files import decode, encode, regular_file, write_error

NAME = "series.jsonl"
MAX_LINE_BYTES = 1 << 28
BLOCK_BYTES = 1 << 20
_TRIAL_FIELDS = tuple(field.name for field in fields(PlannedTrial))
_ATTEMPT_FIELDS = tuple(field.name for field in fields(AttemptRecord))


@dataclass(frozen=True, slots=True)
class SeriesRow:
    """One attempt, the trial it belongs to, and whether it is the one that counts."""

    trial: PlannedTrial
    record: AttemptRecord
    counts: bool


def plain_trial(trial: PlannedTrial) -> dict[str, Any]:
    """A planned trial as plain data, sharing what it holds."""
    return {name: getattr(trial, name) for name in _TRIAL_FIELDS}


def plain_attempt(record: AttemptRecord) -> dict[str, Any]:
    """An attempt as plain data. As `to_mapping`, without copying thousands of iteration rows."""
    data = {name: getattr(record, name) for name in _ATTEMPT_FIELDS}
    for name in LATER_FIELDS:
        if not data[name]:
            del data[name]
    data["outcome"] = record.outcome.value
    data["blame"] = record.outcome.blame.value
    if record.failure:
        data["failure"] = {
            "phase": record.failure.phase,
            "type": record.failure.type,
            "message": record.failure.message,
            "traceback": record.failure.traceback,
        }
    data["artifacts"] = [
        {
            "name": each.name,
            "digest": each.digest,
            "size_bytes": each.size_bytes,
            "media_type": each.media_type,
        }
        for each in record.artifacts
    ]
    return data


def encode_row(run_id: str, row: SeriesRow) -> bytes:
    """One line of the file."""
    data = {
        "schema_version": SCHEMA_VERSION,
        "run_id": run_id,
        **plain_trial(row.trial),
        **plain_attempt(row.record),
        "counts": row.counts,
    }
    return encode(data).encode("utf-8", "replace") + b"\n"


def decode_row(data: Mapping[str, Any], place: str, trials: Mapping[str, PlannedTrial]) -> SeriesRow:
    """One line read back, every field checked."""
    counts = data.get("counts")
    if not isinstance(counts, bool):
        raise UsageError(f"{place}: 'counts' must be true or false")
    record = attempt_from(data, place)
    return SeriesRow(trials.get(record.key) or trial_from(data, place), record, counts)


def read_series(
    folder: Path,
    *,
    run_id: str | None = None,
    trials: Mapping[str, PlannedTrial] | None = None,
    prepare: Callable[[dict[str, Any]], None] | None = None,
) -> Iterator[SeriesRow]:
    """The rows of a run folder's series; none when it has no such file. A torn last line is passed over.

    With `trials`, by key, a row's trial is taken from there and not read again from every row. `prepare` may
    change what was read before it is checked.
    """
    if not os.path.lexists(folder / NAME):
        return
    path = regular_file(folder, NAME)
    with path.open("rb") as stream:
        number = 0
        while block := _lines(stream, path, number):
            for data in _decoded(block, path, number):
                number += 1
                place = f"{path}:{number}"
                if not isinstance(data, dict):
                    raise UsageError(f"{place}: a JSON object is expected here")
                if run_id is not None and data.get("run_id") != run_id:
                    raise UsageError(
                        f"{place}: a row of run {data.get('run_id')!r:.80} in the folder of run {run_id!r}"
                    )
                if prepare:
                    prepare(data)
                yield decode_row(data, place, trials or {})


def _lines(stream: BinaryIO, path: Path, number: int) -> list[bytes]:
    """The next whole lines, about a megabyte of them; a torn last line is passed over."""
    block: list[bytes] = []
    held = 0
    while held < BLOCK_BYTES and (line := stream.readline(MAX_LINE_BYTES)):
        if not line.endswith(b"\n"):
            if len(line) >= MAX_LINE_BYTES:
                at = number + len(block) + 1
                raise UsageError(f"{path}:{at}: a line of more than {MAX_LINE_BYTES >> 20} MiB")
            break
        block.append(line)
        held += len(line)
    return block


def _decoded(block: list[bytes], path: Path, number: int) -> Iterator[Any]:
    """What the lines say. All in one pass, where equal names become one string; singly when one is wrong."""
    if all(line.startswith(b"{") and line.endswith(b"}\n") for line in block):
        try:
            found = decode(b"[" + b",".join(block) + b"]", str(path))
        except UsageError:
            found = []
        if len(found) == len(block):
            yield from found
            return
    for at, line in enumerate(block, number + 1):
        yield decode(line, f"{path}:{at}")


class Series:
    """The file, open for appending. Each row is one write; one that fails is taken back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644
            )
        except OSError as error:
            raise write_error(path, error) from error
        self._size = _mend(self._fd)

    def append(self, line: bytes) -> None:
        """Add one row; on a full disk the file is as it was before."""
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            os.ftruncate(self._fd, self._size)
            raise write_error(self.path, error) from error
        self._size += len(line)

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
