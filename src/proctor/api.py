"""`proctor.run`, `proctor.compare` and the recommended configuration, for scripts and notebooks.

A run is executed in a thread of its own, because a notebook has an event loop already and a script has none.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from proctor.engine.stop import Stop
from proctor.errors import Interrupted, UsageError
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.spec import Spec
from proctor.model.trial import Lease, RunStatus
from proctor.runfolder.read import RunData, TrialResult
from proctor.runs.planning import with_sources
from proctor.runs.process_resources import Resources
from proctor.runs.running import ReadyRun, create, execute
from proctor.settings import Settings, load_settings
from proctor.tables.columns import Kind

if TYPE_CHECKING:
    from proctor.experiments.simulation.logged import LoggedSimulation
    from proctor.verdicts.compare.judge import Comparison
    from proctor.verdicts.gate.verdict import GateResult
    from proctor.verdicts.recommended import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEvent:
    """One trial of a run began an attempt or ended one."""

    kind: Literal["started", "ended"]
    index: int
    """Which trial of the plan, from 0."""
    label: str
    attempt: int
    done: int
    """Trials that have their result."""
    total: int
    outcome: str | None = None
    """How the attempt ended; None for `started`."""
    reward: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A run that has ended, with all its results in memory."""

    data: RunData
    gate: GateResult | None = None
    """The verdict of the spec's own `gates`; None when it has none."""

    @property
    def id(self) -> str:
        """What every command takes as RUN."""
        return self.data.info.id

    @property
    def name(self) -> str:
        """The spec's name."""
        return self.data.info.name

    @property
    def status(self) -> str:
        """`done`, or `cancelled` when someone cancelled it meanwhile."""
        return self.data.info.status.value

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return Path(self.data.info.folder)

    @property
    def report(self) -> Path:
        """The page for a browser."""
        return self.folder / "report.html"

    @property
    def trials(self) -> tuple[TrialResult, ...]:
        """Every planned trial with its attempts, in plan order."""
        return self.data.trials

    @property
    def outcomes(self) -> dict[str, int]:
        """How many trials ended with each outcome."""
        counts: dict[str, int] = {}
        for trial in self.trials:
            if trial.outcome:
                counts[trial.outcome.value] = counts.get(trial.outcome.value, 0) + 1
        return counts

    @property
    def summary(self) -> dict[str, Any]:
        """What `proctor run --json` prints."""
        from proctor.verdicts.run.summary import summary

        return summary(self.data)

    @property
    def exit_code(self) -> int:
        """What `proctor run` would have returned to a shell."""
        from proctor.cli.run import exit_code

        return int(self.gate.exit_code if self.gate else exit_code(self.data))

    def rows(self, kind: Kind = "trials") -> list[dict[str, Any]]:
        """One of the run's tables as a list of dicts; see `proctor.load`."""
        from proctor.tables.frame import load

        return load(self.folder, kind, as_="rows")

    def frame(self, kind: Kind = "trials") -> Any:
        """The same as a pandas data frame, which needs pandas."""
        from proctor.tables.frame import load

        return load(self.folder, kind, as_="pandas")

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in self.outcomes.items())
        return f"<Run {self.id} {self.name}: {self.status}, {counts or 'no result'}>"


SpecLike = str | Path | Mapping[str, Any] | Spec


def run(
    spec: SpecLike,
    *,
    overrides: Sequence[str] = (),
    experiments: Sequence[str] = (),
    parallel: int | None = None,
    output_dir: str | Path | None = None,
    settings: Settings | None = None,
    on_event: Callable[[TrialEvent], object] | None = None,
) -> Run:
    """Execute a spec to its end and return its results, as `proctor run` does.

    `spec` is the path of a spec file, a mapping with the same keys, or a `Spec`. `overrides` are texts such
    as `iterations.measured=20`; `experiments` names folders or modules with more experiments. `on_event` is
    called from another thread for each attempt that begins or ends.

    Ctrl-C finishes what runs, saves it and raises `Interrupted`; a second one stops at once. A trial that
    fails raises nothing: it is in `Run.outcomes`.
    """
    settings = settings or load_settings()
    wanted, written = _spec(spec, overrides)
    wanted = with_sources(wanted, experiments)
    if wanted.gates:
        from proctor.verdicts.gate.rules import read_rules

        read_rules(wanted.gates)
    if parallel is not None:
        if parallel < 1:
            raise UsageError(f"run(parallel={parallel}): give 1 or more")
        wanted = replace(wanted, parallel=parallel)
    if output_dir:
        wanted = replace(wanted, output_dir=str(output_dir))
    with Resources(settings) as resources:
        job = create(wanted, written, resources)
        status = _Execution(job, on_event).result()
        if status is RunStatus.INTERRUPTED:
            raise Interrupted(
                f"interrupted; finished trials are saved; continue with: proctor resume {job.info.id}"
            )
        return _finished(job)


def _finished(job: ReadyRun) -> Run:
    data = RunData.from_folder(job.folder)
    if not job.spec.gates or data.info.status is not RunStatus.DONE:
        return Run(data)
    from proctor.cli.gate import gate_run

    return Run(data, gate_run(data, job.spec.gates, job.resources))


def _spec(spec: SpecLike, overrides: Sequence[str]) -> tuple[Spec, Mapping[str, Any]]:
    """The spec, and what the caller wrote as plain data."""
    from proctor.spec.load import from_mapping, load, written
    from proctor.spec.secrets import hidden

    if isinstance(overrides, str):
        raise UsageError("run(overrides=…): give a list of texts such as ['iterations.measured=20']")
    if isinstance(spec, str | Path):
        loaded = load(Path(spec), overrides=overrides)
        return loaded, hidden(written(Path(spec)), loaded.secrets)
    if isinstance(spec, Spec):
        data = spec.to_mapping()
        return replace(from_mapping(data, overrides=overrides), secrets=spec.secrets), data
    read = from_mapping(spec, overrides=overrides, environ=os.environ)
    return read, hidden(dict(spec), read.secrets)


_HEARD_WITHIN_S = 0.2
"""A signal that the kernel gives to another thread does not wake the main one, which alone may handle it."""


class _Execution:
    """A run in a thread of its own; tells a callback what happens and passes on Ctrl-C."""

    def __init__(self, job: ReadyRun, on_event: Callable[[TrialEvent], object] | None) -> None:
        self.job = job
        self.on_event = on_event
        self.done = 0
        self._error: BaseException | None = None
        self._status: Future[RunStatus] = Future()
        self._interrupts = 0
        """How often Ctrl-C was pressed; `_heeded` of them the run has been told."""
        self._heeded = 0
        self._stop: Stop | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def result(self) -> RunStatus:
        """Start, and wait for the end. Each Ctrl-C meanwhile is a request to stop."""
        with self._on_ctrl_c():
            threading.Thread(target=self._work, name=f"proctor-run-{self.job.info.id}").start()
            while not wait([self._status], timeout=_HEARD_WITHIN_S).done:
                pass
        status = self._status.result()
        if self._error:
            raise self._error
        return status

    @contextmanager
    def _on_ctrl_c(self) -> Iterator[None]:
        """Count each Ctrl-C instead of raising it: an exception could come before there is a run to stop."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.getsignal(signal.SIGINT)
        if before in {signal.SIG_IGN, None}:  # not to be heard: as under `nohup`
            yield
            return
        signal.signal(signal.SIGINT, lambda *_: self._interrupt())
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _interrupt(self) -> None:
        self._interrupts += 1
        if self._loop is not None:
            with suppress(RuntimeError):  # it may have ended by now
                self._loop.call_soon_threadsafe(self._heed)

    def _heed(self) -> None:
        """Pass on what was asked and is not passed on yet."""
        assert self._stop is not None
        if asked := self._interrupts - self._heeded:
            self._heeded += asked
            self._stop.request(times=asked)

    def _work(self) -> None:
        try:
            self._status.set_result(asyncio.run(self._go()))
        except BaseException as error:  # noqa: BLE001 - raised again where the caller waits
            self._status.set_exception(error)

    async def _go(self) -> RunStatus:
        self._stop = Stop()
        self._loop = asyncio.get_running_loop()
        self._heed()
        return await execute(self.job, listener=self, stop=self._stop)

    def started(self, trial: PlannedTrial, lease: Lease) -> None:
        """An attempt has begun."""
        self._tell("started", trial, lease.attempt)

    def ended(self, trial: PlannedTrial, record: AttemptRecord, counts: bool) -> None:
        """An attempt is saved."""
        self.done += counts
        self._tell("ended", trial, record.number, record)

    def _tell(
        self,
        kind: Literal["started", "ended"],
        trial: PlannedTrial,
        attempt: int,
        record: AttemptRecord | None = None,
    ) -> None:
        if not self.on_event or self._error:
            return
        event = TrialEvent(
            kind=kind,
            index=trial.index,
            label=trial.label,
            attempt=attempt,
            done=self.done,
            total=len(self.job.plan),
            outcome=record.outcome.value if record else None,
            reward=record.reward if record else None,
        )
        try:
            self.on_event(event)
        except BaseException as error:  # noqa: BLE001 - the run is saved first, then the caller gets it
            self._error = error
            assert self._stop is not None
            self._stop.request(times=2)


def compare(
    a: Run | str | Path,
    b: Run | str | Path,
    *,
    metrics: Sequence[str] = (),
    margin: float | None = None,
    higher_is_better: bool | None = None,
    these_tasks: bool | None = None,
    changed_tasks: bool = False,
    seed: int = 0,
    settings: Settings | None = None,
) -> Comparison:
    """Judge run `b` against run `a`, as `proctor compare` does.

    Each is what `proctor.run` returned, an id, a name, `latest`, `latest~1`, a run folder or a result file.
    `margin` is the loss that is tolerated, as a fraction: 0.05 is 5 %. `these_tasks` says
    whether scores are judged for these tasks or (False) for tasks like these; None takes the wider one that
    the number of tasks can judge. Tasks whose content is not the same in both are left out unless
    `changed_tasks` asks for them. Raises `UsageError` when the two have nothing in common.
    """
    from proctor.store.open import StorePool
    from proctor.verdicts.compare.open import compare_refs

    if margin is not None and not 0 <= margin < 10:
        raise UsageError(f"compare(margin={margin}): give a fraction such as 0.05")
    with StorePool((settings or load_settings()).store_url, create=False) as stores:
        found, _, _ = compare_refs(
            (_ref(a), _ref(b)),
            stores,
            metrics=(metrics,) if isinstance(metrics, str) else tuple(metrics),
            margin=margin,
            higher_is_better=higher_is_better,
            these_tasks=these_tasks,
            changed_tasks=changed_tasks,
            seed=seed,
        )
    return found


def _ref(side: Run | str | Path) -> str:
    return str(side.folder if isinstance(side, Run) else side)


def get_recommended_config(
    num_agents: int = 30,
    num_steps: int = 100,
    *,
    explain: Callable[[str], object] | None = None,
    settings: Settings | None = None,
) -> LoggedSimulation:
    """How to keep the log of a simulation of that size, as measured; UsageError outside what was measured.

    The measurement is the newest complete run of `specs/recommended_config.yaml` in the store, otherwise the
    one that comes with Proctor. `explain` gets the sentences that say what was chosen and from which run.
    """
    from proctor.verdicts.recommended import recommend

    found = recommend(recommended_measurement(settings), num_agents, num_steps)
    if explain is not None:
        explain(found.text)
    return found.config


def recommended_measurement(settings: Settings | None = None) -> Measurement:
    """The measurement that recommendations rest on here."""
    from proctor.store.open import open_store
    from proctor.verdicts.recommended import RUN_NAME, of_run, packaged

    settings = settings or load_settings()
    with open_store(settings.store_url, create=False) as store:
        for info in store.runs(name=RUN_NAME, status=RunStatus.DONE):
            with suppress(UsageError):
                return of_run(RunData.from_store(store, info.id))
    return packaged()
