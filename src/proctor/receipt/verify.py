"""Check a receipt on its own: every digest, and every number calculated again from the rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from proctor.errors import UsageError
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRow
from proctor.model.run import RunInfo
from proctor.receipt import document
from proctor.receipt.archive import Archive, DamagedError, open_receipt
from proctor.receipt.container import free_bytes
from proctor.receipt.differences import Difference, Findings, compare
from proctor.receipt.document import File
from proctor.receipt.evidence import Evidence, Read, check_artifact
from proctor.receipt.invariants import Attempts, check_end, check_plan
from proctor.receipt.rebuild import RAW, installed_version
from proctor.receipt.recount import Recount
from proctor.receipt.signature import Signature, Standing, check_signature
from proctor.runfolder.files import decode
from proctor.runfolder.read import RunData
from proctor.runfolder.result import artifact_paths
from proctor.runfolder.series import NAME, decode_row, encode_row

EVIDENCE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Verified:
    """What a check of a receipt came to."""

    path: Path
    head: Mapping[str, Any]
    root: str
    """Calculated from the list of files; quote this one."""
    findings: Findings
    files: int
    left_out: int
    attempts: int
    documents: int
    """Generated again and compared."""
    same_version: bool
    """False: another Proctor packed it, so pages for people and new fields are not compared."""
    signature: Signature
    expected: bool
    """Whether the root was compared with one that somebody quoted."""

    @property
    def ok(self) -> bool:
        """Whether nothing differs. That says nothing about where the receipt comes from."""
        return not self.findings.total

    @property
    def origin_checked(self) -> bool:
        """Whether a quoted root or a trusted key ties the receipt to somebody."""
        return self.ok and (self.expected or self.signature.standing is Standing.TRUSTED)


def verify_receipt(
    path: Path, *, expect: str | None = None, trust: Iterable[str] = (), now: float = 0.0
) -> Verified:
    """Check the receipt; with `expect`, also that it is the one that somebody quoted.

    `trust`: public keys, one of which must have signed it; `now`: the time, for signatures that expire.
    """
    found = Findings()
    with open_receipt(path) as archive, tempfile.TemporaryDirectory(prefix="proctor-verify-") as scratch:
        receipt = archive.receipt
        packed = {each.path: each.packed for each in receipt.files if each.packed is not None}
        for name, what in free_bytes(path, list(archive.entries.values()), packed):
            found.add(Difference(file=name, what=what))
        root = document.root_of(receipt.head, receipt.files)
        found.value(document.NAME, "root", receipt.root, root, "its own list of files gives")
        if expect is not None:
            found.value(document.NAME, "root", root, expect, "the digest that was expected is")
        signature = check_signature(receipt.signature, root, trust, now)
        if signature.problem:
            found.add(Difference(file=document.NAME, what=signature.problem))
        digests = _check_files(archive, found)
        try:
            attempts, documents = _recompute(archive, digests, Path(scratch), found)
        except Exception as error:  # noqa: BLE001 - a stranger's values may break anything; that is told
            what = f"contains values that cannot be used: {type(error).__name__}: {error}"
            found.add(Difference(file="the archive", what=what))
            attempts = documents = 0
        same_version = receipt.proctor == installed_version()
    left_out = sum(each.packed is None for each in receipt.files)
    return Verified(
        path=path,
        head=receipt.head,
        root=root,
        findings=found,
        files=len(receipt.files),
        left_out=left_out,
        attempts=attempts,
        documents=documents,
        same_version=same_version,
        signature=signature,
        expected=expect is not None,
    )


def _check_files(archive: Archive, found: Findings) -> dict[str, str]:
    """Every listed file is there and is itself, and no other is. The digests that were really found."""
    listed: dict[str, File] = {}
    digests: dict[str, str] = {}
    for file in archive.receipt.files:
        if file.path in listed:
            found.add(Difference(file=file.path, what="is listed twice"))
            continue
        listed[file.path] = file
        if file.path not in archive.entries:
            if file.packed is not None:
                found.add(Difference(file=file.path, what="is missing from the archive"))
            continue
        if file.packed is None:
            found.add(Difference(file=file.path, what="is listed as left out, but is in the archive"))
        try:
            sha256, size = archive.digest(file.path)
        except DamagedError as error:
            found.add(Difference(file=file.path, what=str(error)))
            continue
        digests[file.path] = sha256
        found.value(file.path, "sha256", file.sha256, sha256, "its bytes give")
        found.value(file.path, "bytes", file.size_bytes, size, "it has")
    for name in archive.entries:
        if name not in listed and name != document.NAME:
            found.add(Difference(file=name, what="is in the archive but not listed"))
    return digests


def _recompute(
    archive: Archive, digests: Mapping[str, str], scratch: Path, found: Findings
) -> tuple[int, int]:
    recorded = scratch / "recorded"
    recorded.mkdir()
    try:
        for name in RAW:
            _extract(archive, name, digests, recorded)
        data = RunData.from_folder(recorded)
    except (UsageError, DamagedError) as error:
        found.add(_refused(error, recorded))
        return 0, 0
    planned = [trial.planned for trial in data.trials]
    check_plan(data.info, planned, found)
    listed = {file.path: file for file in archive.receipt.files}

    def read(path: str) -> bytes | None:
        if path not in digests:
            return None
        try:
            return archive.read(path, EVIDENCE_BYTES)
        except DamagedError:
            return None

    recount = Recount(archive, data, digests, found)
    attempts = check_rows(recorded, data.info, planned, listed, read, recount, found)
    check_end(data, found)
    head = document.head_of(data.info, planned, attempts=attempts, proctor=archive.receipt.proctor)
    for field, there, wanted, _ in compare(dict(archive.receipt.head), head):
        found.value(document.NAME, field, there, wanted, "the run gives")
    recount.run(scratch / "made")
    return attempts, recount.made


def _extract(archive: Archive, name: str, digests: Mapping[str, str], folder: Path) -> None:
    if name not in digests:
        raise UsageError(f"{name}: is missing or cannot be read, so no number can be calculated again")
    archive.extract(name, folder / name)


def _refused(error: Exception, folder: Path) -> Difference:
    """What a reader of the raw files said, without the place where they lay for a moment."""
    text = str(error).replace(f"{folder}/", "").replace(str(folder), "the receipt")
    file = next((name for name in RAW if text.startswith(name)), "the archive")
    return Difference(file=file, what=text.removeprefix(file).lstrip(": "))


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
