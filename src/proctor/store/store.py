"""The store of runs, trials, attempts and events, on SQLite or PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from proctor.errors import NotFoundError, UsageError
from proctor.model.outcome import Outcome
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus, TrialState
from proctor.store import coordination, queries, refs, rows, steps
from proctor.store.again import repeatable
from proctor.store.coordination import Coordination, RunLease
from proctor.store.database import ConflictError, Row, Transaction
from proctor.store.fleet import Fleet, nobody_can
from proctor.store.inputs import Input, Inputs
from proctor.store.leases import TrialLife
from proctor.store.service import ownership
from proctor.store.service.ownership import Owner
from proctor.store.spending import Spending

if TYPE_CHECKING:
    from proctor.store.service.service import Service
    from proctor.store.shared_layers import SharedLayers
    from proctor.store.views.views import Views

_STATUS_EVENTS = {
    RunStatus.PENDING: "run.pending",
    RunStatus.RUNNING: "run.started",
    RunStatus.DONE: "run.finished",
    RunStatus.INTERRUPTED: "run.interrupted",
    RunStatus.CANCELLED: "run.cancelled",
}


@repeatable
class Store(TrialLife):
    """Runs, trials, attempts and events. Safe between threads and between processes."""

    @contextmanager
    def apart(self) -> Iterator[Store]:
        """This store on a connection of its own, for a thread that reads much: nothing else waits for it."""
        own = self._db.another()
        try:
            yield self if own is self._db else Store(own)
        finally:
            if own is not self._db:
                own.close()

    @property
    def inputs(self) -> Inputs:
        """What runs are made from."""
        return Inputs(self._db)

    @property
    def coordination(self) -> Coordination:
        """Who coordinates which run."""
        return Coordination(self._db)

    @property
    def fleet(self) -> Fleet:
        """Who works, and what nobody can."""
        return Fleet(self._db)

    @property
    def spending(self) -> Spending:
        """What calls of models cost, and the budgets' books."""
        return Spending(self._db)

    @property
    def shared_layers(self) -> SharedLayers:
        """Layers that one machine built and others may take."""
        from proctor.store.shared_layers import SharedLayers

        return SharedLayers(self._db)

    @property
    def service(self) -> Service:
        """What a server keeps: projects, tokens, uploads, the queue."""
        from proctor.store.service.service import Service

        return Service(self._db)

    def kinds(self, run_id: str) -> Iterator[tuple[object, int, Callable[[], PlannedTrial]]]:
        """Every trial in plan order: what it has in common with its siblings, its rollout, itself."""
        return self.views.trials.kinds(run_id)

    @property
    def views(self) -> Views:
        """What a server reads of runs, trials and events."""
        from proctor.store.views.views import Views

        return Views(self._db)

    def check(self) -> list[str]:
        """What is wrong with the store; empty when it is sound."""
        found = self._db.check()
        if not found:
            found += [
                f"run {row[0]}: the counters do not match the trials" for row in self._db.read(queries.DRIFT)
            ]
            found += [
                f"run {row[0]}: a trial is done without a result" for row in self._db.read(queries.UNANSWERED)
            ]
        return found

    # Runs

    def create_run(
        self, info: RunInfo, plan: Plan, inputs: Sequence[Input] = (), owner: Owner | None = None
    ) -> None:
        """A run, all its trials, what they are made from, its owner and the event, in one transaction."""
        with self._new_run(info.id) as tx:
            needs = rows.needs_of(info, plan.memory_bytes, plan.cpus)
            self._insert_run(tx, info, plan.trials, plan.warnings, len(plan), needs)
            self.inputs.add(tx, info.id, inputs)
            steps.refer(tx, info.id, inputs)
            if owner:
                ownership.own(tx, info.id, owner)
            steps.write_event(tx, info.id, "run.created", {"name": info.name, "trials": len(plan)})

    def import_run(
        self,
        info: RunInfo,
        planned: Iterable[PlannedTrial],
        attempts: Iterable[tuple[AttemptRecord, bool]],
        *,
        warnings: Sequence[str] = (),
    ) -> None:
        """A run that happened elsewhere, whole. Trials that no attempt answers can be resumed."""
        with self._new_run(info.id) as tx:
            self._insert_run(tx, info, planned, tuple(warnings), info.total, rows.needs_of(info))
            for record, counts in attempts:
                self._import_attempt(tx, info.id, record, counts=counts)
            if info.status is RunStatus.CANCELLED:
                left = tx.change(queries.CANCEL_PENDING, {"run": info.id})
                steps.count(tx, info.id, TrialState.CANCELLED, Outcome.CANCELLED, left)
            steps.write_event(tx, info.id, "run.imported", {"name": info.name})

    def runs(
        self,
        *,
        limit: int = 50,
        name: str | None = None,
        status: RunStatus | str | None = None,
        before: str | None = None,
        project: str | None = None,
    ) -> list[RunInfo]:
        """The newest runs, without spec and environment. `name` may have `*`; `before` is a run's id."""
        where = [queries.ANY]
        where += [queries.ONE_NAME] if name is not None else []
        where += [queries.ONE_STATUS] if status is not None else []
        where += [queries.BEFORE] if before is not None else []
        where += [queries.OF_PROJECT] if project is not None else []
        page = " AND ".join(where)
        params = {
            "limit": limit,
            "name": rows.pattern(name or ""),
            "status": RunStatus(status).value if status is not None else "",
            "before": before,
            "project": project,
        }
        found = self._db.read(queries.RUNS.format(where=page), params)
        counts: dict[str, dict[tuple[str, str], int]] = {}
        for run_id, state, outcome, number in self._db.read(
            queries.COUNTS_OF_RUNS.format(where=page), params
        ):
            counts.setdefault(run_id, {})[state, outcome] = number
        return [rows.run_info(row, counts.get(row[0], {})) for row in found]

    def run(self, ref: str) -> RunInfo:
        """One run, whole: by id, beginning of id, name, `latest`, `latest~1` or folder."""
        run_id = refs.resolve(self._db, ref)
        row, detail = self._run_row(run_id)
        return rows.run_info(row, self._counts(run_id), detail)

    def warnings(self, run_id: str) -> tuple[str, ...]:
        """What the plan warned of."""
        return tuple(self._run_row(run_id)[1].get("warnings", ()))

    def set_status(self, run_id: str, status: RunStatus, *, lease: RunLease | None = None) -> None:
        """The status of the run. The first start and the last end are kept; a cancelled run stays it.

        With the `lease` of a coordinator only while it holds: FenceError when it has passed on.
        """
        starts = status is RunStatus.RUNNING
        ends = status in {RunStatus.DONE, RunStatus.INTERRUPTED, RunStatus.CANCELLED}
        with self._db.write() as tx:
            if lease:
                coordination.check(tx, lease)
            before = tx.execute(queries.STARTED, {"run": run_id})
            if not before:
                raise self._no_run(run_id)
            changed = tx.change(
                queries.SET_STATUS,
                {"run": run_id, "status": status.value, "starts": int(starts), "ends": int(ends)},
            )
            if changed:
                resumed = starts and before[0][0] is not None
                steps.write_event(tx, run_id, "run.resumed" if resumed else _STATUS_EVENTS[status], {})

    def set_folder(self, info: RunInfo) -> None:
        """The run's folder is at another place now."""
        with self._db.write() as tx:
            params = rows.run_params(info)
            tx.change(queries.SET_FOLDER, {name: params[name] for name in ("id", "folder", "head")})

    def try_writing(self) -> None:
        """Write what is there already; StoreError where nothing can be written."""
        with self._db.write() as tx:
            tx.change(queries.SAME_VERSION)

    def folders_below(self, folder: str) -> list[str]:
        """The folders of runs that are inside a folder."""
        inside = folder.rstrip("/") + "/"
        params = {"low": inside, "high": inside[:-1] + chr(ord("/") + 1)}
        return [str(row[0]) for row in self._db.read(queries.FOLDERS_BELOW, params)]

    def set_words(self, info: RunInfo) -> None:
        """What people say about a run: its name, notes and tags."""
        params = rows.run_params(info)
        with self._db.write() as tx:
            tx.change(queries.SET_WORDS, {name: params[name] for name in ("id", "name", "head")})
            steps.write_event(tx, info.id, "run.changed", {"name": info.name})

    def set_resolved(self, info: RunInfo) -> None:
        """The run goes on with another resolved spec: other budgets."""
        params = rows.run_params(info, self.warnings(info.id))
        with self._db.write() as tx:
            tx.change(queries.SET_DETAIL, {name: params[name] for name in ("id", "detail")})

    def stalled(self, quiet_s: float = 60.0) -> set[str]:
        """Runs that say they are running although nothing has moved in them and no lease holds."""
        return {str(row[0]) for row in self._db.read(queries.STALLED, {"quiet_s": quiet_s})}

    def unattended(self, run_ids: Sequence[str]) -> dict[str, str]:
        """Those of these runs whose pending trials no live worker can execute, each with a sentence."""
        found = self.fleet.unmet_by_run(run_ids) if run_ids else {}
        by_workers = {each for each in found if self.run(each).resolved.get("engine") == "celery"}
        return {run_id: nobody_can(needs) for run_id, needs in found.items() if run_id in by_workers}

    def delete_run(self, run_id: str) -> list[str]:
        """Remove a run's rows. The digests of the blobs that no other run refers to are returned."""
        with self._db.write() as tx:
            orphans = [str(row[0]) for row in tx.execute(queries.ORPHANS, {"run": run_id})]
            if not tx.change(queries.DELETE_RUN, {"run": run_id}):
                raise self._no_run(run_id)
        return orphans

    def live_blobs(self) -> set[str]:
        """The digests of every blob that some run refers to."""
        return {str(row[0]) for row in self._db.read(queries.REFERRED)}

    def blob_bytes(self, run_id: str) -> int:
        """How much a run's blobs weigh, shared ones included."""
        return int(self._db.read(queries.BYTES_OF_RUN, {"run": run_id})[0][0])

    # Inside

    def _run_row(self, run_id: str) -> tuple[Row, dict[str, Any]]:
        found = self._db.read(queries.RUN, {"run": run_id})
        if not found:
            raise self._no_run(run_id)
        return found[0], rows.unpack(found[0][-1])

    def _no_run(self, run_id: str) -> NotFoundError:
        return NotFoundError(f"no run {run_id} in {self.where}; see 'proctor ls'")

    @contextmanager
    def _new_run(self, run_id: str) -> Iterator[Transaction]:
        try:
            with self._db.write() as tx:
                yield tx
        except ConflictError as error:
            raise UsageError(
                f"run {run_id} cannot be added to {self.where}: it already exists, "
                f"or its plan has two trials with one key ({error})"
            ) from error

    def _insert_run(
        self,
        tx: Transaction,
        info: RunInfo,
        planned: Iterable[PlannedTrial],
        warnings: tuple[str, ...],
        total: int,
        needs: Callable[[PlannedTrial], dict[str, Any]],
    ) -> None:
        tx.execute(queries.INSERT_RUN, {**rows.run_params(info, warnings), "total": total})
        tx.many(queries.INSERT_TRIAL, (rows.trial_params(info.id, trial) | needs(trial) for trial in planned))

    def _import_attempt(self, tx: Transaction, run_id: str, record: AttemptRecord, *, counts: bool) -> None:
        found = tx.execute(
            queries.IMPORT_TRIAL_STATE,
            {
                "run": run_id,
                "key": record.key,
                "number": record.number,
                "counts": int(counts),
                "outcome": record.outcome.value,
            },
        )
        if not found:
            raise UsageError(
                f"an attempt of run {run_id} belongs to trial {record.key}, which its plan does not have"
            )
        body = rows.record_body(record)
        steps.insert_attempt(tx, run_id, found[0][0], record, body, number=record.number, counts=counts)
        steps.tally(tx, run_id, "", [(record, counts)])
