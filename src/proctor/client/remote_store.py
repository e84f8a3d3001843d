"""A server in the place of a store, for reading: commands then show what they show of a local store.

It answers the questions that reading commands ask of a `Store`, over the API. What it cannot answer is a
UsageError that says so.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

import msgspec

from proctor.client.client import Client, Happened
from proctor.client.credentials import Server
from proctor.errors import NotFoundError, ProctorError, UsageError
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord, AttemptRow, work_s
from proctor.model.run import Event, RunInfo
from proctor.store.open import register
from proctor.store.rows import Measured, ResultRow, decoder

if TYPE_CHECKING:
    from proctor.store.store import Store

_LATEST = "latest~"


def use(server: Server, *, ca_bundle: str = "") -> Client:
    """Let the address of this server be one of a store; the client of it."""
    client = Client(server.url, server.token, ca_bundle=ca_bundle)
    register(client.url, lambda: as_store(client))
    return client


def as_store(client: Client) -> Store:
    """The runs of a server as a store: for readers, which ask nothing that it lacks."""
    return cast("Store", RemoteStore(client))


class RemoteStore:
    """Reads runs, trials, attempts and events of a server."""

    remote = True

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stalled: set[str] = set()
        self._waiting: dict[str, str] = {}
        self._details: dict[str, dict[str, Any]] = {}
        self._planned: dict[str, dict[int, PlannedTrial]] = {}
        self._feed: Feed | None = None

    def __getattr__(self, name: str) -> Any:
        raise UsageError(
            f"this does not work against a server ({name.replace('_', ' ')}); run it where the store is, or "
            "with PROCTOR_URL=local for the store of this machine"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def where(self) -> str:
        """The address of the server."""
        return self._client.url

    def close(self) -> None:
        """Nothing is held: a feed ends with its process."""

    def runs(
        self,
        *,
        limit: int = 50,
        name: str | None = None,
        status: str | None = None,
        project: str | None = None,
    ) -> list[RunInfo]:
        """The newest runs."""
        found = []
        rows = self._client.runs(limit=min(limit, 500), name=name, status=status, project=project)
        for row in rows:
            self._note(row)
            found.append(_info(row))
            if len(found) == limit:
                break
        return found

    def run(self, ref: str) -> RunInfo:
        """One run, whole."""
        return _info(self._detail(ref))

    def _detail(self, ref: str) -> dict[str, Any]:
        if ref.startswith(_LATEST) and ref.removeprefix(_LATEST).isdecimal():
            back = int(ref.removeprefix(_LATEST))
            newest = self.runs(limit=back + 1)
            if len(newest) <= back:
                raise NotFoundError(f"{ref}: {self.where} has only {len(newest)} runs; see 'proctor ls'")
            ref = newest[back].id
        found = self._client.run(ref)
        self._note(found)
        self._details[found["id"]] = found
        return found

    def _known(self, run_id: str) -> dict[str, Any]:
        return self._details.get(run_id) or self._detail(run_id)

    def _note(self, row: Mapping[str, Any]) -> None:
        (self._stalled.add if row.get("stalled") else self._stalled.discard)(row["id"])
        self._waiting[row["id"]] = row.get("waiting", "")

    def stalled(self) -> set[str]:
        """Those of the runs read so far that do not move although they say they run."""
        return self._stalled

    def unattended(self, run_ids: Sequence[str]) -> dict[str, str]:
        """Those of the runs read so far that no live worker can execute, each with a sentence."""
        return {each: said for each in run_ids if (said := self._waiting.get(each))}

    def warnings(self, run_id: str) -> tuple[str, ...]:
        """What the plan warned of."""
        return tuple(self._known(run_id)["warnings"])

    def state_counts(self, run_id: str) -> dict[str, int]:
        """How many trials are in each state."""
        return dict(self._known(run_id)["states"])

    def blob_bytes(self, run_id: str) -> int:
        """How much the run's files weigh."""
        return int(self._known(run_id)["artifact_bytes"])

    def trials(self, run_id: str) -> dict[int, PlannedTrial]:
        """Every planned trial by its index; asked once."""
        if run_id not in self._planned:
            self._planned[run_id] = {each.index: each for each in self._client.planned(run_id)}
        return self._planned[run_id]

    def planned(self, run_id: str) -> Iterator[PlannedTrial]:
        """Every planned trial."""
        yield from self.trials(run_id).values()

    def kinds(self, run_id: str) -> Iterator[tuple[object, int, Callable[[], PlannedTrial]]]:
        """Every trial in plan order: what it has in common with its siblings, its rollout, itself."""
        from proctor.verdicts.rollouts.table import kind_of

        for trial in self.planned(run_id):
            yield kind_of(trial), trial.rollout, partial(_itself, trial)

    def trial(self, run_id: str, key: str) -> PlannedTrial:
        """One planned trial."""
        return next(each for each in self.trials(run_id).values() if each.key == key)

    def attempts(self, run_id: str, *, counted_only: bool = False) -> Iterator[AttemptRow]:
        """Every attempt in plan order."""
        yield from self._client.records(run_id, self.trials(run_id), counted=int(counted_only))

    def attempts_of(self, run_id: str, *keys: str) -> list[AttemptRow]:
        """Every attempt at one trial or several."""
        indexes = [self.trial(run_id, key).index for key in keys]
        return list(self._client.records_of(run_id, self.trials(run_id), indexes))

    def records(self, run_id: str, keys: Sequence[str]) -> Iterator[tuple[int, AttemptRecord, bool]]:
        """Every attempt with the index of its trial, and whether it counts."""
        assert len(keys) == len(self.trials(run_id))
        for row in self.attempts(run_id):
            yield row.trial.index, row.record, row.counts

    def brief_records(self, run_id: str, keys: Sequence[str]) -> Iterator[tuple[int, AttemptRecord, bool]]:
        """As `records`, with what a store has as columns: what it shows is then the same."""
        for index, record, counts in self.records(run_id, keys):
            worked_s = work_s(record.phases_s)
            brief = AttemptRecord(
                key=record.key,
                number=record.number,
                outcome=record.outcome,
                started_at=record.started_at,
                ended_at=record.ended_at,
                reward=record.reward,
                worker=record.worker,
                phases_s={} if worked_s is None else {"agent": worked_s},
            )
            yield index, brief, counts

    def results(self, run_id: str, *, bodies: bool = True) -> Iterator[ResultRow]:
        """Every trial with the attempt that counts."""
        counted = {row.trial.index: row.record for row in self.attempts(run_id, counted_only=True)}
        for index, trial in self.trials(run_id).items():
            yield _result(trial, counted.get(index), bodies=bodies)

    def last_event(self, run_id: str) -> int:
        """The id of the newest event of a run."""
        return int(self._detail(run_id)["last_event"])

    def events(self, *, after: int = 0, run_id: str, limit: int = 1000) -> list[Event]:
        """What happened after an event, up to the newest there is now."""
        if self._feed is None:
            self._feed = Feed(self._client, run_id, after)
        last = self.last_event(run_id) if not self._feed.waiting else after
        return [self._event(each) for each in self._feed.take(last, limit)]

    def wait_events(self, _after: int, timeout_s: float, *, run_id: str) -> bool:
        """Wait until something comes."""
        assert self._feed is not None, run_id
        return self._feed.wait(timeout_s)

    def _event(self, told: Happened) -> Event:
        key = None if told.index is None else self.trials(told.run)[told.index].key
        return Event(id=told.id, run_id=told.run, at=told.at, kind=told.kind, trial_key=key, data=told.data)


class Feed:
    """The events of a run, read in a thread, so that whoever wants them may do something else meanwhile."""

    def __init__(self, client: Client, run_id: str, after: int = 0) -> None:
        self._come: queue.Queue[Happened | ProctorError] = queue.Queue()
        self._kept: list[Happened] = []
        self._last = after
        source: Callable[[], Iterator[Happened | None]] = lambda: client.events(run_id, after)  # noqa: E731
        threading.Thread(target=self._read, args=(source,), daemon=True).start()

    def _read(self, source: Callable[[], Iterator[Happened | None]]) -> None:
        try:
            for each in source():
                if each is not None and not each.kind.startswith("stream."):
                    self._come.put(each)
        except ProctorError as error:
            self._come.put(error)

    @property
    def waiting(self) -> bool:
        """Whether something has come that nobody has taken."""
        return bool(self._kept) or not self._come.empty()

    def wait(self, timeout_s: float) -> bool:
        """Wait until something is there; False when nothing came in time."""
        if self._kept:
            return True
        try:
            self._keep(self._come.get(timeout=timeout_s))
        except queue.Empty:
            return False
        return True

    def take(self, last: int = 0, limit: int = 1000, timeout_s: float = 60.0) -> list[Happened]:
        """What has come, at least up to an event that is known to be there."""
        while len(self._kept) < limit and (self._last < last or not self._come.empty()):
            try:
                self._keep(self._come.get(timeout=timeout_s))
            except queue.Empty:
                break
        found, self._kept = self._kept[:limit], self._kept[limit:]
        return found

    def _keep(self, come: Happened | ProctorError) -> None:
        if isinstance(come, ProctorError):
            raise come
        self._last = come.id
        self._kept.append(come)


def _info(row: Mapping[str, Any]) -> RunInfo:
    return msgspec.convert(row, RunInfo, strict=False)


def _itself(trial: PlannedTrial) -> PlannedTrial:
    return trial


def _result(trial: PlannedTrial, record: AttemptRecord | None, *, bodies: bool) -> ResultRow:
    options = trial.overrides.get("agent_options") if trial.kind == "task" else None
    measured = decoder(Measured).decode(msgspec.json.encode(record)) if record and bodies else Measured()
    return ResultRow(
        key=trial.key,
        subject=trial.subject,
        agent=trial.agent,
        model=trial.model,
        params=trial.params if trial.kind == "experiment" else {},
        number=record.number if record else None,
        outcome=record.outcome if record else None,
        started_at=record.started_at if record else 0.0,
        ended_at=record.ended_at if record else 0.0,
        reward=record.reward if record else None,
        work_s=work_s(record.phases_s) if record else None,
        options=options or {},
        subject_digest=trial.subject_digest,
        measured=measured,
    )
