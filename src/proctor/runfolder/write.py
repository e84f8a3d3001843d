"""The run folder: everything about a run in plain files, written as it happens, readable without Proctor.

`manifest.json` is written when the run begins: what was to be done; rollouts add what came of it at the end.
`series.jsonl` grows by a row per attempt, whose artifacts may come later: `copies` says how far they are.
`summary.json` and the reports are written at the end, and again after a resume.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import asdict

from proctor.disk import spread
from proctor.errors import StoreError, UsageError
from proctor.model.place import safe_name, trial_folder
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.record import SCHEMA_VERSION, Artifact, AttemptRecord, AttemptRow
from proctor.model.run import RunInfo
from proctor.runfolder.copies import Copies
from proctor.runfolder.files import beside_of, encode, make_folder, write_atomic, write_error, write_once
from proctor.runfolder.read import RunData, read_manifest
from proctor.runfolder.result import ResultWriter
from proctor.runfolder.series import NAME, Series, encode_row, read_series

if TYPE_CHECKING:
    from proctor.store.blobs import Blobs
    from proctor.store.store import Store

T = TypeVar("T")
_PAGE = 200
"""Rows that are appended with one write."""
_MOST_NOW, _MOST_NOW_BYTES = 50, 4 << 20
"""Files of an attempt that are copied before its row is written: the loop of all runs waits for them."""
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
    """One run's folder, open for writing. With `blobs` the artifacts are copied in, at the latest at the end.

    `complete`: rollouts too have a `result.json`, which says again what is in the series and the manifest.
    """

    def __init__(self, path: Path, *, blobs: Blobs | None = None, complete: bool = False) -> None:
        self.path = path
        self._base = str(path)
        self._copies = Copies(path, blobs) if blobs else None
        self._at_once = blobs is not None and not blobs.remote
        """Whether blobs are near enough that an attempt's files are copied before its row is written."""
        self._complete = complete
        self._series: Series | None = None
        self._written: Written | None = None
        self._results: ResultWriter | None = None
        self._warnings: tuple[str, ...] = ()

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
        """Add an attempt that has ended: its result, and its row, which makes it official.

        Its artifacts are copied first where blobs are near and they are small; else `copy_some` copies them.
        """
        row = AttemptRow(record, counts=counts, trial=trial)
        if self._copies and self._at_once and _are_small(record.artifacts):
            self._copies.now(trial, record)
            self._append([row], later=False)
        else:
            self._append([row])

    def append_all(self, rows: Sequence[AttemptRow]) -> None:
        """Add attempts of others that have ended; `copy_some` copies their artifacts."""
        self._append(rows)

    def _append(self, rows: Sequence[AttemptRow], *, later: bool = True) -> None:
        series, written = self._open()
        for row in rows:
            self._write_result(row)
        if self._copies and later and any(row.record.artifacts for row in rows):
            self._copies.expect(series.size)
        try:
            series.append(b"".join(encode_row(self._writer.info.id, row) for row in rows))
        finally:
            if self._copies:
                self._copies.added(series.size)
        written.update({(row.record.key, row.record.number): row.counts for row in rows})

    def copy_some(self, go_on: Callable[[], bool] = lambda: True) -> bool:
        """Copy artifacts of some rows that came before them; whether there may be more. For another thread.

        What blobs cannot give now is a StoreError, and tried again by the next call.
        """
        return self._copies.some(go_on) if self._copies else False

    def copy_rest(self, go_on: Callable[[], bool] = lambda: True) -> None:
        """Copy every artifact that is still missing; StoreError when one cannot be had."""
        if self._copies:
            self._copies.rest(go_on)

    def has(self, key: str, number: int) -> bool:
        """Whether an attempt is in the series already."""
        return (key, number) in self._open()[1]

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
        """Complete the series from the data and the artifacts; `report` writes what is made of the data."""
        made = self.conclude(data, report)
        self.copy_rest()
        return made

    def conclude(self, data: RunData, report: Callable[[RunData, Path], T]) -> T:
        """As `finish`, without the artifacts that are still to come."""
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

    def _open(self) -> tuple[Series, Written]:
        if self._written is None:
            found = read_series(self.path, run_id=self._writer.info.id)
            self._written = {(row.record.key, row.record.number): row.counts for row in found}
        if self._series is None:
            self._series = Series(self.path / NAME)
            if self._copies:
                self._copies.open(self._series.size)
        return self._series, self._written

    def _reconcile(self, wanted: Written, rows: Callable[[], Iterator[AttemptRow]]) -> None:
        """Append what is missing; where the file contradicts, write it again."""
        try:
            _, have = self._open()
        except UsageError:
            self._written = None
        else:
            if all(wanted.get(each) == counts for each, counts in have.items()):
                missing = wanted.keys() - have.keys()
                found = (row for row in rows() if (row.record.key, row.record.number) in missing)
                while missing and (page := list(islice(found, _PAGE))):
                    self._append(page)
                return
        self._write_again(rows())
        self._written = dict(wanted)

    def _write_again(self, rows: Iterator[AttemptRow]) -> None:
        self.close()
        path = self.path / NAME
        beside = beside_of(path)
        series = Series(beside)
        try:
            if self._copies:
                self._copies.restart()
            for row in rows:
                self._write_result(row)
                series.append(encode_row(self._writer.info.id, row))
            beside.replace(path)
        except OSError as error:
            raise write_error(path, error) from error
        finally:
            series.close()
            beside.unlink(missing_ok=True)
        if self._copies:
            self._copies.added(series.size)

    def _write_result(self, row: AttemptRow) -> None:
        if row.counts and (self._complete or row.trial.kind == "experiment"):
            text = self._writer.encode(row.trial, row.record)
            write_once(f"{self._base}/{trial_folder(row.trial)}/result.json", text)


def _are_small(artifacts: Sequence[Artifact]) -> bool:
    """Whether an event loop may copy them."""
    return len(artifacts) <= _MOST_NOW and sum(each.size_bytes for each in artifacts) <= _MOST_NOW_BYTES


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
