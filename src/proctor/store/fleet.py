"""The workers of a store: who is there, what each can execute, and which runs none of them can.

A worker says with every heartbeat that it is there; one that has not for a while is no longer counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from proctor.model.trial import Offers
from proctor.store import queries
from proctor.store.database import Database, Row
from proctor.store.rows import column, words

SEEN_S = 30.0
"""How long a worker counts after its last heartbeat."""
FORGET_S = 86_400.0

_SEEN = """
INSERT INTO workers (name, host, place, version, parallel, running, cpus, memory_mb, backends, labels, run,
                     draining, left_runs, since, seen_at)
VALUES (:name, :host, :place, :version, :parallel, :running, :cpus, :memory_mb, :backends, :labels, :run,
        :draining, :left_runs, {now}, {now})
ON CONFLICT (name) DO UPDATE SET parallel = excluded.parallel, running = excluded.running,
  draining = excluded.draining, left_runs = excluded.left_runs, seen_at = excluded.seen_at
"""
_GONE = "DELETE FROM workers WHERE name = :name"
_FORGET = "DELETE FROM workers WHERE seen_at < {now} - :forget_s"
_COLUMNS = (
    "name, host, version, parallel, running, cpus, memory_mb, backends, labels, run, draining, since, "
    "seen_at, {now}, left_runs"
)
_LIVE = f"SELECT {_COLUMNS} FROM workers WHERE seen_at >= {{now}} - :seen_s ORDER BY host, name"
_CLASS = "t.run_id, t.kind, t.backend, t.memory_mb, t.cpus, t.labels"
_NEEDS = f"""
SELECT {_CLASS}, count(*) FROM trials t
WHERE t.run_id IN ({{runs}}) AND t.state = 'pending' GROUP BY {_CLASS} ORDER BY {_CLASS}
"""


_READY = "t.state = 'pending' AND t.ready_at <= {now}"
_DEMAND = f"""
SELECT t.backend, count(*), sum(CASE WHEN r.id = :run THEN 1 ELSE 0 END)
FROM trials t JOIN runs r ON r.id = t.run_id WHERE r.status = 'running' AND {_READY} GROUP BY t.backend
"""
_FREE = """
SELECT w.parallel - COALESCE(h.held, 0), w.backends FROM workers w LEFT JOIN
  (SELECT worker, count(*) AS held FROM trials WHERE expires_at IS NOT NULL GROUP BY worker) h
  ON h.worker = w.name
WHERE w.seen_at >= {now} - :seen_s AND w.draining = 0 AND w.run IN ('', :run)
"""
_TAKEABLE_OF = f"""
SELECT t.idx FROM trials t WHERE t.run_id = :run AND {_READY} AND t.backend = :backend
ORDER BY t.idx LIMIT :limit
"""
_PRIORITY = "SELECT priority FROM run_service WHERE run_id = :run"


class WorkerInfo(Struct, frozen=True, kw_only=True):
    """A worker as it describes itself."""

    name: str
    host: str
    version: str
    parallel: int
    """How many trials it executes at a time."""
    place: str = ""
    """Whose memory it uses, as `Offers.place` says."""
    running: int = 0
    cpus: float = 0.0
    memory_mb: int = 0
    backends: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    run: str = ""
    """The only run that it works at; empty: any."""
    draining: bool = False
    """It takes nothing more."""
    left: Mapping[str, str] = {}
    """Runs of which it takes no trials, each with the reason."""
    since: float = 0.0
    seen_at: float = 0.0
    silent_s: float = 0.0
    """How long ago it was heard of."""

    @property
    def offers(self) -> Offers:
        """All that it could take while nothing runs."""
        return Offers(backends=self.backends, memory_mb=self.memory_mb, cpus=self.cpus, labels=self.labels)


class Requirement(Struct, frozen=True):
    """What trials of a run need of a worker, and how many need just that."""

    kind: str
    backend: str
    memory_mb: int
    cpus: float
    labels: tuple[str, ...]
    trials: int
    left: tuple[str, ...] = ()
    """Why those that have all of it take no trials of the run, by host."""

    def met_by(self, offers: Offers) -> bool:
        """Whether a worker can execute them."""
        return (
            self.kind in offers.kinds
            and (not self.backend or self.backend in offers.backends)
            and self.memory_mb <= offers.memory_mb
            and self.cpus <= offers.cpus
            and set(self.labels) <= set(offers.labels)
        )

    def in_words(self) -> str:
        """For people: `podman, 4096 MB, label gpu`."""
        parts = [self.backend] if self.backend else []
        parts += [f"{self.memory_mb} MB of memory"] if self.memory_mb else []
        parts += [f"{self.cpus:g} processors"] if self.cpus else []
        parts += [f"the label {each}" for each in self.labels]
        return ", ".join(parts) or "any worker"


class Fleet:
    """The workers of a store."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def seen(self, worker: WorkerInfo) -> None:
        """A heartbeat. Those that have long been silent are forgotten on the way."""
        params: dict[str, Any] = {
            "name": column(worker.name),
            "host": column(worker.host),
            "place": worker.place,
            "version": worker.version,
            "parallel": worker.parallel,
            "running": worker.running,
            "cpus": worker.cpus,
            "memory_mb": worker.memory_mb,
            "backends": words(worker.backends),
            "labels": words(worker.labels),
            "run": worker.run,
            "draining": int(worker.draining),
            "left_runs": msgspec.json.encode(worker.left).decode(),
        }
        with self._db.write() as tx:
            tx.change(_SEEN, params)
            tx.change(_FORGET, {"forget_s": FORGET_S})

    def gone(self, name: str) -> None:
        """A worker that ended says so."""
        with self._db.write() as tx:
            tx.change(_GONE, {"name": column(name)})

    def live(self) -> list[WorkerInfo]:
        """Every worker that was heard of lately, by host."""
        return [_worker(row) for row in self._db.read(_LIVE, {"seen_s": SEEN_S})]

    def unmet(self, run_id: str) -> list[Requirement]:
        """What the pending trials of a run need and no live worker can give: they would wait for ever."""
        return self.unmet_by_run([run_id]).get(run_id, [])

    def unmet_by_run(self, run_ids: Sequence[str]) -> dict[str, list[Requirement]]:
        """The same of several runs, of those that have such trials."""
        workers = [each for each in self.live() if not each.draining]
        sql, params = queries.listed(_NEEDS, runs=run_ids)
        found: dict[str, list[Requirement]] = {}
        for run_id, kind, backend, memory_mb, cpus, labels, trials in self._db.read(sql, params):
            need = Requirement(kind, backend, memory_mb, cpus, _split(labels), trials)
            able = [each for each in workers if each.run in {"", run_id} and need.met_by(each.offers)]
            if all(run_id in each.left for each in able):
                left = {f"{each.host}: {each.left[run_id]}" for each in able}
                found.setdefault(run_id, []).append(replace(need, left=tuple(sorted(left))))
        return found

    def demand(self, run_id: str) -> dict[str, tuple[int, int]]:
        """How many trials of all running runs, and of this one, can be taken now, by sandbox."""
        found = self._db.read(_DEMAND, {"run": run_id})
        return {str(row[0]): (int(row[1]), int(row[2])) for row in found}

    def free_places(self, run_id: str) -> list[tuple[int, tuple[str, ...]]]:
        """How many more trials each worker could execute that may work at a run, and in which sandboxes."""
        found = self._db.read(_FREE, {"run": run_id, "seen_s": SEEN_S})
        return [(int(row[0]), _split(row[1])) for row in found if row[0] > 0]

    def takeable_of(self, run_id: str, backend: str, limit: int) -> list[int]:
        """Which trials of a run those are, in the order of the plan."""
        found = self._db.read(_TAKEABLE_OF, {"run": run_id, "backend": backend, "limit": limit})
        return [int(row[0]) for row in found]

    def priority(self, run_id: str) -> int:
        """Of a run; 0 where nobody has set one."""
        found = self._db.read(_PRIORITY, {"run": run_id})
        return int(found[0][0]) if found else 0


def nobody_can(unmet: Iterable[Requirement]) -> str:
    """A sentence about trials that no live worker can execute; empty when there are none."""
    found = list(unmet)
    if not found:
        return ""
    trials = sum(each.trials for each in found)
    needs = "; ".join(sorted({each.in_words() for each in found}))
    noun = "trial waits" if trials == 1 else "trials wait"
    if left := sorted({why for each in found for why in each.left}):
        return f"{trials} {noun}, and no worker takes {'it' if trials == 1 else 'them'}: {'; '.join(left)}"
    return (
        f"{trials} {noun} for a worker that is not there: needs {needs}. Start one with 'proctor worker' "
        "(--label for labels)"
    )


def _worker(row: Row) -> WorkerInfo:
    return WorkerInfo(
        name=row[0],
        host=row[1],
        version=row[2],
        parallel=row[3],
        running=row[4],
        cpus=row[5],
        memory_mb=row[6],
        backends=_split(row[7]),
        labels=_split(row[8]),
        run=row[9],
        draining=bool(row[10]),
        since=row[11],
        seen_at=row[12],
        silent_s=max(0.0, row[13] - row[12]),
        left=msgspec.json.decode(row[14], type=dict[str, str]),
    )


def _split(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split("|")))
