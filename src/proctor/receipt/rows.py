"""Every row of `series.jsonl`, as it is written: its form, its place, its artifacts and its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from proctor.errors import UsageError
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRow
from proctor.model.run import RunInfo
from proctor.receipt.differences import Difference, Findings, compare
from proctor.receipt.document import File
from proctor.receipt.evidence import Evidence, Read, check_artifact
from proctor.receipt.invariants import Attempts
from proctor.receipt.recount import Recount
from proctor.runfolder.files import decode
from proctor.runfolder.result import artifact_paths
from proctor.runfolder.series import NAME, decode_row, encode_row


def check_rows(
    folder: Path,
    info: RunInfo,
    planned: Sequence[PlannedTrial],
    listed: Mapping[str, File],
    read: Read,
    recount: Recount,
    found: Findings,
) -> int:
    """Look at each row once, in the order of the file; how many there are."""
    by_key = {trial.key: trial for trial in planned}
    attempts, evidence = Attempts(planned, info, found), Evidence(read, found)
    number = 0
    for place, line in _lines(folder):
        try:
            row = _row(line, place, info, found)
        except UsageError as error:
            found.add(Difference(file=NAME, what=str(error).removeprefix(f"{NAME}:")))
            continue
        number += 1
        own = row.trial
        row = replace(row, trial=by_key.get(row.record.key, own))
        attempts.look(row, own)
        for path, artifact in zip(artifact_paths(row.trial, row.record), row.record.artifacts, strict=True):
            check_artifact(row, artifact, path, listed.get(path), found)
        try:
            evidence.check(row)
            recount.trial(row)
        except Exception as error:  # noqa: BLE001 - a stranger's values may break any arithmetic; it is told
            what = f"its numbers cannot be calculated again: {type(error).__name__}: {error}"
            found.add(Difference(file=NAME, what=what, trial=row.trial, attempt=row.record.number))
    return number


def _lines(folder: Path) -> Iterator[tuple[str, bytes]]:
    with (folder / NAME).open("rb") as stream:
        for number, line in enumerate(stream, 1):
            yield f"{NAME}:{number}", line


def _row(line: bytes, place: str, info: RunInfo, found: Findings) -> AttemptRow:
    """One row read back; written again it must be the same line."""
    row = decode_row(line, place)
    again = encode_row(info.id, row)
    if again != line:
        number = place.rpartition(":")[2]
        differs = [
            each for each in compare(decode(line, place), decode(again, place)) if each[0] != "schema_version"
        ]
        for name, there, expected, _ in differs:
            source = f"the rest of line {number} gives"
            found.value(NAME, name, there, expected, source, trial=row.trial, attempt=row.record.number)
        if not differs:
            found.add(
                Difference(
                    file=NAME,
                    what=f"line {number} is not written the way Proctor writes it",
                    trial=row.trial,
                    attempt=row.record.number,
                )
            )
    return row
