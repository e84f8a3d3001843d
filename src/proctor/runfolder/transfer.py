"""A run out of one store and into another, by way of its folder, without loss and without trust.

Export fills a folder beside the target and renames it: the target is complete or absent. Import checks every
row, every name and every digest before the first write, so that a refused folder leaves nothing behind.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict, replace

from proctor.errors import NotFoundError, UsageError
from proctor.model.canonical import digest
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.record import Artifact, AttemptRow
from proctor.model.run import RunInfo
from proctor.runfolder.copies import COPYING
from proctor.runfolder.files import decode, encode, new_folder, regular_file
from proctor.runfolder.read import RunData, read_manifest
from proctor.runfolder.result import artifact_paths
from proctor.runfolder.series import read_series
from proctor.runfolder.write import RunFolder, claim_folder

if TYPE_CHECKING:
    from proctor.store.blobs import Blobs
    from proctor.store.store import Store


Report = Callable[[RunData, Path], object]
"""Writes what is made of a run's data into its folder: summary, Markdown, page."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did."""

    info: RunInfo
    added: bool
    """False: the store already had exactly this run, and nothing was changed."""


def export_run(store: Store, blobs: Blobs, run_id: str, path: Path, report: Report) -> Path:
    """Write a run, as it is now, to a new folder with everything in it."""
    with new_folder(path) as beside:
        folder = RunFolder(beside, blobs=blobs, complete=True)
        try:
            data = RunData.from_store(store, run_id)
            folder.begin(
                data.info, Plan(trials=tuple(trial.planned for trial in data.trials), warnings=data.warnings)
            )
            folder.finish(data, report)
        finally:
            folder.close()
    return path


def import_folder(store: Store, blobs: Blobs, path: Path) -> Imported:
    """Read a run folder into the store, if all of it is sound. The same run a second time changes nothing."""
    info, planned, warnings = read_manifest(path)
    if (path / COPYING).is_dir():
        raise UsageError(
            f"{path}: artifacts are still being copied into this folder; import it when its run has ended. "
            f"If that was killed, 'proctor resume {info.id}' completes the folder"
        )
    _check_plan(path, info, planned)
    trials = {trial.key: trial for trial in planned}
    _check_rows(path, info, trials)
    if existing := _existing(store, info.id):
        _check_same(store, existing, info, planned, read_series(path, run_id=info.id), path)
        return Imported(existing, added=False)
    for row in read_series(path, run_id=info.id):
        for artifact, relative in zip(
            row.record.artifacts, artifact_paths(row.trial, row.record), strict=True
        ):
            # Also those that are there: putting one keeps a collection of garbage away from it.
            kept = blobs.put_file(regular_file(path, relative), artifact.name, artifact.media_type)
            if kept.digest != artifact.digest:
                raise UsageError(f"{path / relative}: changed while it was read")
    attempts = ((row.record, row.counts) for row in read_series(path, run_id=info.id))
    store.import_run(info, planned, attempts, warnings=warnings)
    return Imported(store.run(info.id), added=True)


def import_data(
    store: Store, blobs: Blobs, data: RunData, base: Path, report: Report, source: Path
) -> Imported:
    """A run that was read from another tool's files, into the store and a folder of its own below `base`."""
    info, planned = data.info, [trial.planned for trial in data.trials]
    if existing := _existing(store, info.id):
        _check_same(store, existing, info, planned, data.rows(), source)
        return Imported(existing, added=False)
    place = claim_folder(base, info.name, info.id).resolve()
    data = dataclasses.replace(data, info=replace(info, folder=str(place)))
    RunFolder(place, blobs=blobs).finish(data, report)
    attempts = ((row.record, row.counts) for row in data.rows())
    store.import_run(data.info, planned, attempts, warnings=data.warnings)
    return Imported(store.run(info.id), added=True)


def _check_plan(path: Path, info: RunInfo, planned: list[PlannedTrial]) -> None:
    place = path / "manifest.json"
    if len({trial.key for trial in planned}) != len(planned):
        raise UsageError(f"{place}: two trials have the same key")
    if sorted(trial.index for trial in planned) != list(range(len(planned))):
        raise UsageError(f"{place}: the trials are not numbered from 0 to {len(planned) - 1}")
    found = digest([trial.key for trial in planned])
    if info.plan_digest and found != info.plan_digest:
        raise UsageError(f"{place}: the plan does not match its digest; it was changed after the run began")


def _check_rows(path: Path, info: RunInfo, trials: dict[str, PlannedTrial]) -> None:
    """Every attempt belongs to the plan, none comes twice, one per trial counts, every artifact is itself."""
    seen: set[tuple[str, int]] = set()
    counted: set[str] = set()
    for row in read_series(path, run_id=info.id):
        where = f"{path / 'series.jsonl'}: attempt {row.record.number} of trial {row.record.key[:12]}"
        if trials.get(row.record.key) != row.trial:
            raise UsageError(f"{where}: not the planned trial with this key")
        if (row.record.key, row.record.number) in seen:
            raise UsageError(f"{where}: appears twice")
        seen.add((row.record.key, row.record.number))
        if row.counts and row.record.key in counted:
            raise UsageError(f"{where}: a second attempt that counts")
        if row.counts:
            counted.add(row.record.key)
        for artifact, relative in zip(
            row.record.artifacts, artifact_paths(row.trial, row.record), strict=True
        ):
            _check_artifact(path, artifact, relative)


def _check_artifact(path: Path, artifact: Artifact, relative: str) -> None:
    file = regular_file(path, relative)
    if file.stat().st_size != artifact.size_bytes:
        raise UsageError(
            f"{file}: has {file.stat().st_size} bytes, but its record says {artifact.size_bytes}"
        )
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != artifact.digest:
        raise UsageError(f"{file}: does not match its digest; it was changed or damaged")


def _existing(store: Store, run_id: str) -> RunInfo | None:
    try:
        info = store.run(run_id)
    except NotFoundError:
        return None
    return info if info.id == run_id else None


def _check_same(
    store: Store,
    existing: RunInfo,
    info: RunInfo,
    planned: list[PlannedTrial],
    rows: Iterable[AttemptRow],
    path: Path,
) -> None:
    same = _identity(existing) == _identity(info) and planned == list(store.planned(info.id))
    if same:
        same = _attempts(store.attempts(info.id)) == _attempts(rows)
    if not same:
        raise UsageError(
            f"{path}: the store already has run {info.id}, and it differs from this folder; "
            f"'proctor rm {info.id}' first if the folder is the right one"
        )


def _identity(info: RunInfo) -> str:
    """A run's facts that do not depend on where it is kept."""
    plain = replace(info, folder="", done=0, counts={})
    return _fingerprint(asdict(plain))


def _attempts(rows: Iterable[AttemptRow]) -> dict[tuple[str, int], str]:
    return {
        (row.record.key, row.record.number): _fingerprint([row.counts, row.record.to_mapping()])
        for row in rows
    }


def _fingerprint(value: Any) -> str:
    """The digest of what a value is once written and read back."""
    return digest(decode(encode(value).encode(), "a record"))
