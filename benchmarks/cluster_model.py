"""A run on many machines as stations with queues: store, broker, coordinator, workers, blobs, models.

Pure: costs and a shape go in, times and shares of use come out. What each cost is and how
it is measured is in `cluster_costs.py`; the tables are made by `cluster_simulation.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from queueing import Activity, Host, Need, Simulation, Station

LOOK_S, TICK_S, PAGE = 0.5, 1.0, 200
"""How often workers look at their leases, how often the coordinator looks, and how many results it reads."""
COPIED_AT_ONCE = 64
"""Trials whose files are copied into the run's folder at the same time."""
BUSY = 0.8
"""From this share of use on a station's queue grows faster than its work."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Milliseconds of CPU unless the name says otherwise, as `cluster_costs.json` has them."""

    plan_ms: float
    """Coordinator, per trial: expand it, write it to the store."""
    plan_read_ms: float
    """Worker, per trial of the run, once: read the plan."""
    plan_read_store_ms: float
    """The store's share of that."""
    report_ms: float
    """Coordinator, per trial, after the last one: status and reports."""
    exchange_store_ms: float
    """Store, per trial: a result is committed and the next trial is taken."""
    exchange_worker_ms: float
    """Worker, per trial: its side of that."""
    renew_store_ms: float
    """Store, per lease: a heartbeat."""
    renew_worker_ms: float
    look_store_ms: float
    """Store, per look of a worker: whether its leases still hold."""
    look_worker_ms: float
    look_each_store_ms: float
    """Store, per look and lease."""
    look_each_worker_ms: float
    write_ms: float
    """Coordinator, per trial: read its result and write its row."""
    write_store_ms: float
    """The store's share of that."""
    copy_ms: float
    """Coordinator's host, per blob: copied from an object store into the folder, behind the rows."""
    copy_near_ms: float
    """Coordinator's Python, per blob: what of that its interpreter does; all of it, from a shared folder."""
    copy_wait_ms: float
    """Time until the object store has given it."""
    publish_ms: float
    """Coordinator, per message."""
    deliver_ms: float
    """Worker, per message: Celery's way from the broker to the attempt and back."""
    broker_ms: float
    """Broker, per message: published, delivered, acknowledged."""
    trial_ms: float
    """Worker, per trial: Proctor's own Python."""
    task_ms: float
    """Worker's host, per trial: sandbox, agent and verifier."""
    call_ms: float
    """Worker, per model call: the gateway, and an agent that only calls."""
    turn_ms: float
    """The same with an agent that runs a command in its sandbox after each answer."""
    command_ms: float
    """Worker's host, per command: in the sandbox."""
    blob_ms: float
    """Worker's host, per blob: put into an object store."""
    blob_wait_ms: float
    """Time, not CPU, until the object store has answered for all blobs of a trial."""
    commit_wait_ms: float
    """Time until a commit is on the store's disk, and the way there and back."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a trial is made of."""

    name: str
    turns: int = 0
    """Calls of a model."""
    think_s: float = 0.0
    """How long a model takes to answer."""
    commands: bool = True
    """Whether each turn has a command in the sandbox."""
    blobs: int = 5
    """How many objects a trial leaves."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How many machines there are, and how large they are."""

    workers: int
    slots: int
    """Trials that a worker executes in parallel."""
    worker_cores: int = 2
    store_cores: int = 4
    turns_together: int = 1
    """Turns that are played as one, to save time where there are many workers."""
    one_host: bool = False
    """Everything on one machine of `worker_cores`, as where it was checked."""


@dataclass(slots=True)
class Result:
    """What came of it."""

    seconds: float
    """Until the last row is in the folder, and the run has ended."""
    files_s: float
    """From then until the folder has all files."""
    before_s: float
    after_s: float
    use: dict[str, float]
    """Busy share of each station while trials ran."""
    first: str
    """The busiest station, when it is busy enough to hold the others up; copies of files hold up nothing."""

    def per_second(self, trials: int) -> float:
        """Trials that ended in a second, without planning and reports."""
        return trials / self.seconds if self.seconds else 0.0


@dataclass(slots=True, eq=False)
class _Worker:
    host: Host
    python: Station
    """One process: its loop and its threads share one interpreter."""
    line: Station
    """One call of the store at a time."""
    held: int = 0


@dataclass(slots=True, eq=False)
class Cluster:
    """One run, while it is simulated."""

    costs: Costs
    work: Work
    shape: Shape
    trials: int
    simulation: Simulation
    store: Station
    broker: Station
    coordinator: Station
    copying: Station
    """Trials whose files are on their way into the folder."""
    workers: list[_Worker] = field(default_factory=list)
    taken: int = 0
    ended: int = 0
    written: int = 0
    last_s: float = 0.0
    complete_s: float = 0.0
    busy_s: dict[str, float] = field(default_factory=dict)
    """Seconds that each station was busy until the last row, as if it had one server."""

    def slot(self, worker: _Worker) -> Activity:
        """Trials one after the other, as long as there are any."""
        costs = self.costs
        if self.taken < self.trials:  # one message wakes the place
            yield Need(self.broker, costs.broker_ms / 1e3)
            yield Need(worker.python, costs.deliver_ms / 1e3)
        while self.taken < self.trials:
            self.taken += 1
            yield Need(worker.python, costs.exchange_worker_ms / 1e3)
            yield from self._asked(worker, costs.exchange_store_ms / 1e3)
            worker.held += 1
            yield from self._trial(worker)
            worker.held -= 1
            self.ended += 1
        # What ended last is committed without a next one to take.
        yield from self._asked(worker, costs.exchange_store_ms / 2e3)

    def _trial(self, worker: _Worker) -> Activity:
        costs, work = self.costs, self.work
        yield Need(worker.python, costs.trial_ms / 1e3)
        yield Need(worker.host, costs.task_ms / 1e3)
        turn_ms = costs.turn_ms if work.commands else costs.call_ms
        for size in _pieces(work.turns, self.shape.turns_together):
            yield Need(worker.python, size * turn_ms / 1e3, parts=size)
            yield Need(None, size * work.think_s)
            if work.commands:
                yield Need(worker.host, size * costs.command_ms / 1e3, parts=size)
        if work.blobs:
            yield Need(worker.host, work.blobs * costs.blob_ms / 1e3, parts=work.blobs)
            yield Need(None, costs.blob_wait_ms / 1e3)

    def _asked(self, worker: _Worker, seconds: float) -> Activity:
        """A call of the store by a worker, which makes one at a time."""
        yield Need(worker.line, 0.0, keep=True)
        yield Need(self.store, seconds)
        yield Need(None, self.costs.commit_wait_ms / 1e3)
        self.simulation.give_back(worker.line)

    def heart(self, worker: _Worker, lease_s: float) -> Activity:
        """Looks at the leases twice a second, and renews all of them three times per lease."""
        costs, renewed_s = self.costs, self.simulation.now
        while self.ended < self.trials:
            yield Need(None, LOOK_S)
            if not worker.held:
                continue
            due = self.simulation.now - renewed_s >= lease_s / 3
            python_ms = costs.look_worker_ms + worker.held * costs.look_each_worker_ms
            store_ms = costs.look_store_ms + worker.held * costs.look_each_store_ms
            if due:
                python_ms, store_ms = costs.renew_worker_ms * worker.held, costs.renew_store_ms * worker.held
            renewed_s = self.simulation.now if due else renewed_s
            yield Need(worker.python, python_ms / 1e3)
            yield from self._asked(worker, store_ms / 1e3)

    def coordinate(self) -> Activity:
        """Publish a message for every place, and write to the folder what has ended; its files follow."""
        costs, python = self.costs, self.coordinator
        for size in _pieces(min(self.trials, self.shape.workers * self.shape.slots), PAGE):
            yield Need(python, size * costs.publish_ms / 1e3, parts=size)
        while self.written < self.trials:
            yield Need(None, TICK_S)
            while found := min(self.ended - self.written, PAGE):
                yield Need(self.store, found * costs.write_store_ms / 1e3, parts=found)
                yield Need(python, found * costs.write_ms / 1e3, parts=found)
                self.written += found
                for _ in range(found if self.work.blobs else 0):
                    self.simulation.begin(self.copy())
        self.last_s = self.simulation.now
        self.complete_s = max(self.complete_s, self.last_s)
        self.busy_s = self._busy_s()

    def _busy_s(self) -> dict[str, float]:
        hosts = {id(each.host): each.host for each in self.workers}
        leading = self.coordinator.host
        assert leading
        cores = self.shape.worker_cores if self.shape.one_host else self.shape.store_cores
        return {
            "store": self.store.busy_s / cores,
            "broker": self.broker.busy_s,
            "coordinator": self.coordinator.busy_s,
            "its cores": leading.busy_s / leading.cores,
            "worker's Python": sum(each.python.busy_s for each in self.workers) / self.shape.workers,
            "cores": sum(each.busy_s for each in hosts.values()) / sum(each.cores for each in hosts.values()),
        }

    def copy(self) -> Activity:
        """Copy the files of a trial, one after the other."""
        costs = self.costs
        rest_ms = max(0.0, costs.copy_ms - costs.copy_near_ms)
        yield Need(self.copying, 0.0, keep=True)
        for _ in range(self.work.blobs):
            yield Need(self.coordinator, costs.copy_near_ms / 1e3)
            yield Need(self.coordinator.host, rest_ms / 1e3)
            yield Need(None, costs.copy_wait_ms / 1e3)
        self.simulation.give_back(self.copying)
        self.complete_s = max(self.complete_s, self.simulation.now)


def _pieces(number: int, size: int) -> Iterator[int]:
    for begin in range(0, number, size):
        yield min(size, number - begin)


def build(
    costs: Costs, work: Work, shape: Shape, trials: int, *, seed: int = 1, vary: bool = True
) -> Cluster:
    """The stations of a cluster, with nothing begun."""
    alone = Host("host", shape.worker_cores) if shape.one_host else None
    coordinator, store, broker = (
        alone or Host(name, cores)
        for name, cores in (("coordinator", 2), ("store", shape.store_cores), ("broker", 2))
    )
    cluster = Cluster(
        costs=costs,
        work=work,
        shape=shape,
        trials=trials,
        simulation=Simulation(seed, vary=vary),
        store=Station("store", 1000, store),
        broker=Station("broker", 1, broker),
        coordinator=Station("coordinator", 1, coordinator),
        copying=Station("copying", COPIED_AT_ONCE),
    )
    for number in range(shape.workers):
        host = alone or Host(f"worker {number}", shape.worker_cores)
        cluster.workers.append(_Worker(host, Station("python", 1, host), Station("line", 1)))
    return cluster


def simulate(
    costs: Costs,
    work: Work,
    shape: Shape,
    trials: int,
    *,
    lease_s: float = 30.0,
    seed: int = 1,
    vary: bool = True,
) -> Result:
    """One run of so many trials: when it ends, and how busy everything was."""
    cluster = build(costs, work, shape, trials, seed=seed, vary=vary)
    simulation = cluster.simulation
    simulation.begin(cluster.coordinate())
    read_s = trials * costs.plan_read_ms / 1e3
    for worker in cluster.workers:
        simulation.begin(_joining(cluster, worker, read_s, lease_s))
    simulation.run()
    return _result(cluster)


def _joining(cluster: Cluster, worker: _Worker, read_s: float, lease_s: float) -> Activity:
    """A worker begins by reading the plan of the run."""
    trials = cluster.trials
    yield Need(cluster.store, trials * cluster.costs.plan_read_store_ms / 1e3, parts=trials)
    yield Need(worker.python, read_s, parts=trials)
    cluster.simulation.begin(cluster.heart(worker, lease_s))
    for _ in range(min(cluster.shape.slots, cluster.trials)):
        cluster.simulation.begin(cluster.slot(worker))


def _result(cluster: Cluster) -> Result:
    seconds, costs = cluster.last_s, cluster.costs
    use = {name: each / seconds for name, each in cluster.busy_s.items()}
    busiest = max((name for name in use if name != "its cores"), key=lambda name: use[name])
    return Result(
        seconds=seconds,
        files_s=cluster.complete_s - seconds,
        before_s=cluster.trials * costs.plan_ms / 1e3,
        after_s=cluster.trials * costs.report_ms / 1e3,
        use=use,
        first=busiest if use[busiest] >= BUSY else "",
    )
