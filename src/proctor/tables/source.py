"""Where a table's rows come from: a run of the store, a run folder, or a receipt."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.errors import NotFoundError, UsageError
from proctor.model.record import AttemptRow
from proctor.model.run import RunInfo
from proctor.runfolder.read import RunData, TrialResult
from proctor.tables.columns import Kind, Row, Table, attempt_row, iteration_rows, table, trial_row

if TYPE_CHECKING:
    from proctor.store.open import StorePool
    from proctor.store.store import Store


@dataclass(frozen=True, slots=True)
class Source:
    """A run whose rows can be asked for more than once."""

    info: RunInfo
    rows: Callable[[], Iterator[AttemptRow]]
    trials: Callable[[], Iterator[TrialResult]]

    def table(self, kind: Kind) -> Table:
        """One of the run's tables."""
        return table(kind, {"trials": self._trials, "attempts": self._attempts}.get(kind, self._iterations))

    def _trials(self) -> Iterator[Row]:
        return (trial_row(self.info, trial) for trial in self.trials())

    def _attempts(self) -> Iterator[Row]:
        return (attempt_row(self.info, row) for row in self.rows())

    def _iterations(self) -> Iterator[Row]:
        return (each for row in self.rows() for each in iteration_rows(self.info, row))


@contextmanager
def open_source(ref: str, stores: StorePool) -> Iterator[Source]:
    """The run that `ref` means: a receipt, a run of the store, or a run folder that is in no store."""
    path = Path(ref)
    if path.is_file():
        with _receipt(path) as source:
            yield source
        return
    with stores.borrow() as store:
        try:
            source = _stored(store, ref)
        except NotFoundError:
            if not (path / "manifest.json").is_file():
                raise
            source = _of(RunData.from_folder(path))
        yield source


def _stored(store: Store, ref: str) -> Source:
    info = store.run(ref)

    def rows() -> Iterator[AttemptRow]:
        return store.attempts(info.id)

    def trials() -> Iterator[TrialResult]:
        """Plan and attempts come in the same order, so they are joined without holding either."""
        tried = groupby(rows(), key=lambda row: row.trial.key)
        key, group = next(tried, (None, None))
        for planned in store.planned(info.id):
            if group is None or key != planned.key:
                yield TrialResult(planned)
                continue
            attempts = list(group)
            counted = next((row.record for row in attempts if row.counts), None)
            yield TrialResult(planned, tuple(row.record for row in attempts), counted)
            key, group = next(tried, (None, None))

    return Source(info, rows, trials)


def _of(data: RunData) -> Source:
    return Source(data.info, data.rows, lambda: iter(data.trials))


@contextmanager
def _receipt(path: Path) -> Iterator[Source]:
    """The raw files of a receipt, unpacked for the moment; those that are not what it says are refused."""
    from proctor.receipt.archive import DamagedError, open_receipt
    from proctor.receipt.rebuild import RAW

    with open_receipt(path) as archive, tempfile.TemporaryDirectory(prefix="proctor-load-") as scratch:
        listed = {file.path: file.sha256 for file in archive.receipt.files}
        for name in RAW:
            try:
                whole = name in archive.entries and archive.extract(name, Path(scratch, name)) == listed.get(
                    name
                )
            except DamagedError:
                whole = False
            if not whole:
                raise UsageError(
                    f"{path}: {name} is missing, damaged or changed; 'proctor verify {path}' shows more"
                )
        yield _of(RunData.from_folder(Path(scratch)))
