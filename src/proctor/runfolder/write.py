"""The run folder: everything about a run in plain files, written as it happens, readable without Proctor.

`manifest.json` is written when the run begins: what was to be done; rollouts add what came of it at the end.
`series.jsonl` grows by a row per attempt. `summary.json` and the reports are written at the end, and again
after a resume.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import asdict

from proctor.disk import spread
from proctor.errors import NotFoundError, StoreError, UsageError
from proctor.model.place import safe_name, trial_folder
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.record import SCHEMA_VERSION, Artifact, AttemptRecord, AttemptRow
from proctor.model.run import RunInfo
from proctor.runfolder.files import beside_of, encode, make_folder, write_atomic, write_error, write_once
from proctor.runfolder.read import RunData, read_manifest
from proctor.runfolder.result import ResultWriter, artifact_paths
from proctor.runfolder.series import NAME, Series, encode_row, read_series

if TYPE_CHECKING:
    from proctor.store.blobs import Blobs
    from proctor.store.store import Store

T = TypeVar("T")
_AT_ONCE = 8
"""Attempts whose artifacts are copied at the same time."""
Written = dict[tuple[str, int], bool]
"""(trial key, attempt number) → whether that attempt counts."""


def folder_for(base: Path, name: str, run_id: str) -> Path:
    """Where a run's folder usually is."""
    return base / safe_name(name) / safe_name(run_id)


def claim_folder(base: Path, name: str, run_id: str) -> Path:
    """Make the folder of a run for it alone: an existing folder is never used."""
    usual = folder_for(base, name, run_id)
    parent = usual.parent
    make_folder(parent)
    spread(parent)
    for number in range(1, 10_000):
        path = usual if number == 1 else parent / f"{usual.name}-{number}"
        try:
            path.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise write_error(path, error) from error
        return path
    raise StoreError(f"{parent}: no free folder for run {run_id}")


class RunFolder:
    """One run's folder, open for writing. With `blobs` the artifacts are copied in as attempts end.

    `complete`: rollouts too have a `result.json`, which says again what is in the series and the manifest.
    """

    def __init__(self, path: Path, *, blobs: Blobs | None = None, complete: bool = False) -> None:
        self.path = path
        self._base = str(path)
        self._blobs = blobs
        self._complete = complete
        self._series: Series | None = None
        self._written: Written | None = None
        self._results: ResultWriter | None = None
        self._warnings: tuple[str, ...] = ()
        self._made: set[str] = set()

    def begin(self, info: RunInfo, plan: Plan) -> None:
        """Write the manifest. A folder that holds another run is refused; one that holds this run is kept."""
        make_folder(self.path)
        if (self.path / "manifest.json").exists():
            found, _, self._warnings = read_manifest(self.path)
            if found.id != info.id:
                raise UsageError(f"{self.path}: the folder of another run, {found.id}")
        else:
            write_atomic(self.path / "manifest.json", encode_manifest(info, plan))
            self._warnings = plan.warnings
        self._results = ResultWriter(info)

    def append(self, trial: PlannedTrial, record: AttemptRecord, counts: bool) -> None:
        """Add an attempt that has ended: its artifacts, its result, and its row, which makes it official."""
        self._open()
        row = AttemptRow(record, counts=counts, trial=trial)
        self._write_files(row)
        self._add_row(row)

    def _add_row(self, row: AttemptRow) -> None:
        assert self._series is not None
        assert self._written is not None
        self._series.append(encode_row(self._writer.info.id, row))
        self._written[row.record.key, row.record.number] = row.counts

    def append_all(self, rows: Sequence[AttemptRow]) -> None:
        """As `append`; the artifacts of several are copied at the same time, since blobs may be far away."""
        self._open()
        with ThreadPoolExecutor(min(_AT_ONCE, len(rows) or 1), "proctor-folder") as threads:
            for row, _ in zip(rows, threads.map(self._write_files, rows), strict=True):
                self._add_row(row)

    def has(self, key: str, number: int) -> bool:
        """Whether an attempt is in the series already."""
        self._open()
        assert self._written is not None
        return (key, number) in self._written

    def reopen(self, store: Store) -> None:
        """Update the folder from the store after a crash: the store is right about every attempt."""
        if (self.path / "manifest.json").is_file():
            found, _, self._warnings = read_manifest(self.path)
            info = store.run(found.id)
        else:
            info = store.run(str(self.path))
            trials, warnings = tuple(store.planned(info.id)), store.warnings(info.id)
            self.begin(info, Plan(trials=trials, warnings=warnings))
        self._results = ResultWriter(info)

        def rows() -> Iterator[AttemptRow]:
            return store.attempts(info.id)

        self._reconcile({(row.record.key, row.record.number): row.counts for row in rows()}, rows)

    def finish(self, data: RunData, report: Callable[[RunData, Path], T]) -> T:
        """Complete the series from the data and let `report` write what is made of it into the folder."""
        if not (self.path / "manifest.json").exists():
            self.begin(data.info, Plan(trials=tuple(t.planned for t in data.trials), warnings=data.warnings))
        data = replace(data, warnings=data.warnings or self._warnings)
        self._results = ResultWriter(data.info)
        wanted = {
            (record.key, record.number): record is trial.counted
            for trial in data.trials
            for record in trial.attempts
        }
        self._reconcile(wanted, data.rows)
        self.close()
        return report(data, self.path)

    def close(self) -> None:
        """Let go of the series. Safe to call twice."""
        if self._series:
            self._series.close()
            self._series = None

    @property
    def _writer(self) -> ResultWriter:
        if self._results is None:
            self._results = ResultWriter(read_manifest(self.path)[0])
        return self._results

    def _open(self) -> None:
        if self._written is None:
            found = read_series(self.path, run_id=self._writer.info.id)
            self._written = {(row.record.key, row.record.number): row.counts for row in found}
        if self._series is None:
            self._series = Series(self.path / NAME)

    def _reconcile(self, wanted: Written, rows: Callable[[], Iterator[AttemptRow]]) -> None:
        """Append what is missing; where the file contradicts, write it again."""
        try:
            self._open()
        except UsageError:
            self._written = None
        have = self._written
        if have == wanted:
            return
        if have is not None and all(wanted.get(each) == counts for each, counts in have.items()):
            missing = wanted.keys() - have.keys()
            for row in rows():
                if (row.record.key, row.record.number) in missing:
                    self.append(row.trial, row.record, row.counts)
            return
        self.close()
        path = self.path / NAME
        beside = beside_of(path)
        series = Series(beside)
        try:
            for row in rows():
                self._write_files(row)
                series.append(encode_row(self._writer.info.id, row))
            beside.replace(path)
        except OSError as error:
            raise write_error(path, error) from error
        finally:
            series.close()
            beside.unlink(missing_ok=True)
        self._written = dict(wanted)

    def _write_files(self, row: AttemptRow) -> None:
        paths = artifact_paths(row.trial, row.record)
        if self._blobs:
            for artifact, relative in zip(row.record.artifacts, paths, strict=True):
                self._copy(artifact, relative)
        if row.counts and (self._complete or row.trial.kind == "experiment"):
            text = self._writer.encode(row.trial, row.record, paths)
            write_once(f"{self._base}/{trial_folder(row.trial)}/result.json", text)

    def _copy(self, artifact: Artifact, relative: str) -> None:
        """Copy one artifact into the folder unless it is there already."""
        assert self._blobs is not None
        try:
            found = os.lstat(f"{self._base}/{relative}")
        except OSError:
            found = None
        if found and stat.S_ISREG(found.st_mode) and found.st_size == artifact.size_bytes:
            return
        digest, target = artifact.digest, self.path / relative
        self._make(os.path.dirname(relative))  # noqa: PTH120 - a relative path as text, made many times
        beside = beside_of(target)
        try:
            with self._blobs.open(digest) as source, beside.open("wb") as copy:
                shutil.copyfileobj(source, copy, 1 << 20)
            beside.replace(target)
        except NotFoundError as error:
            raise StoreError(
                f"{relative}: the blob {digest} is not in the store; it was removed or never written"
            ) from error
        except OSError as error:
            beside.unlink(missing_ok=True)
            raise write_error(target, error) from error

    def _make(self, relative: str) -> None:
        if relative not in self._made:
            make_folder(f"{self._base}/{relative}")
            self._made.add(relative)


def run_fields(info: RunInfo) -> dict[str, Any]:
    """The part of a run that changes while it runs."""
    return {
        "id": info.id,
        "name": info.name,
        "kind": info.kind,
        # Left out where the kind says it: so earlier versions wrote all of them.
        **({"execution": info.execution} if info.execution != info.kind else {}),
        "status": info.status.value,
        "seed": info.seed,
        "created_at": info.created_at,
        "started_at": info.started_at,
        "finished_at": info.finished_at,
        "total": info.total,
        "done": info.done,
        "counts": dict(info.counts),
        "tags": list(info.tags),
        "notes": info.notes,
        "plan_digest": info.plan_digest,
    }


def encode_manifest(info: RunInfo, plan: Plan) -> str:
    """What was to be done: run, spec, environment and plan; a trial per line."""
    head: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "run": run_fields(info),
        "versions": info.versions,
        "vcs": info.vcs,
        "environment": info.environment,
        "spec": info.spec,
        "resolved": info.resolved,
    }
    trials = ",\n".join(f"  {encode(asdict(trial))}" for trial in plan.trials)
    about = encode({"digest": plan.digest, "total": len(plan), "warnings": plan.warnings})
    return f'{encode(head, indent=True)[:-2]},\n "plan": {about[:-1]},"trials":[\n{trials}\n ]}}\n}}\n'
