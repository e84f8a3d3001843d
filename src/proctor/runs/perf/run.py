"""One run of the harness, from the request to the verdict."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proctor.engine.base import Listener
from proctor.errors import Exit
from proctor.model.arms import options_text
from proctor.model.outcome import Outcome
from proctor.model.place import attempt_folder, trial_folder
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.run import Execution
from proctor.model.trial import Lease, RunStatus
from proctor.runfolder.perf import documents
from proctor.runfolder.perf.artifacts import claim_set, release, write_set
from proctor.runfolder.perf.check import check_set
from proctor.runfolder.perf.documents import PerfRun
from proctor.runfolder.perf.episode import Episode, episode, read_trace, with_queue
from proctor.runfolder.perf.footprint import Footprint, footprint
from proctor.runs.perf.guard import Guard, MakeListener
from proctor.runs.perf.scenario import Episodes, Scenario, load_scenario, plan_episodes
from proctor.runs.perf.system import SystemSampler
from proctor.runs.process_resources import Resources
from proctor.runs.running import ReadyRun, create
from proctor.sandbox.choose import choose, kind_of
from proctor.verdicts.perf.growth import growth_checks

if TYPE_CHECKING:
    from proctor.verdicts.gate.verdict import GateResult


@dataclass(frozen=True, slots=True, kw_only=True)
class PerfRequest:
    """What the command is asked for."""

    episodes: int = 24
    workers: int = 4
    timeout_s: float = 180.0
    output_dir: Path = Path("deliverables/perf")
    strict_spec: bool = False
    compress: bool = False
    scenario: Path | None = None
    gate: Path | None = None
    baseline: Path | None = None
    sandbox: str = "auto"
    host_root: bool = False
    """Whether the tasks of an own scenario use this machine's system; those of the usual one always do."""


@dataclass(frozen=True, slots=True)
class PerfResult:
    """What came of it."""

    summary: dict[str, Any]
    files: tuple[Path, ...]
    problems: tuple[str, ...]
    """What `--strict-spec` found wrong."""
    gate: GateResult | None
    """None when a person stopped or cancelled the run: an incomplete run is not judged."""
    status: RunStatus
    folder: Path
    """The run's own folder."""

    @property
    def exit_code(self) -> Exit:
        """0 pass, 1 failures, a broken rule or artifact, 3 and 4 as the gate says, 130 if stopped."""
        if self.gate is None:
            return Exit.INTERRUPTED
        return Exit.WORSE if self.problems else self.gate.exit_code


class Quiet:
    """A listener that prints nothing."""

    def started(self, trial: PlannedTrial, lease: Lease) -> None:
        """An episode has begun."""

    def ended(self, trial: PlannedTrial, record: AttemptRecord, counts: bool) -> None:
        """An episode is saved."""


@contextmanager
def quiet() -> Iterator[Listener]:
    """A listener that does nothing."""
    yield Quiet()


def run_perf(
    request: PerfRequest, resources: Resources, *, listen: MakeListener = quiet, grace_s: float | None = None
) -> PerfResult:
    """Plan, run, gather, write, check, judge."""
    settings, scenario = resources.settings, load_scenario(request.scenario)
    named = request.sandbox if request.sandbox != "auto" else settings.sandbox
    chosen = choose(named)
    episodes = plan_episodes(
        scenario,
        episodes=request.episodes,
        workers=request.workers,
        timeout_s=request.timeout_s,
        sandbox=chosen,
        host_root=request.host_root or (_imageless(request, scenario) and kind_of(chosen).host_root),
        settings=settings,
    )
    _check_early(request)
    written = {"perf": scenario.name, "scenario": [entry.to_mapping() for entry in scenario.entries]}
    ready = create(episodes.spec, written, resources, plan=episodes.plan, execution=Execution.PERF)
    sampler, began = SystemSampler(), time.time()
    guard = Guard(ready, listen, sampler, **({} if grace_s is None else {"grace_s": grace_s}))
    status = guard.run()
    run = gather(request, scenario, episodes, ready, sampler, began)
    taken = claim_set(request.output_dir, datetime.now(UTC))
    try:
        files = write_set(taken, run, _charts(run))
    finally:
        release(taken)
    problems = check_set(taken, run_root=ready.folder) if request.strict_spec else []
    summary = documents.summary(run)
    gate = _judge(request, summary, run) if status is RunStatus.DONE else None
    return PerfResult(summary, tuple(files), tuple(problems), gate, status, ready.folder)


def _imageless(request: PerfRequest, scenario: Scenario) -> bool:
    """Whether this machine's own system is meant: by the built-in scenario, or as no task has an image."""
    return request.scenario is None or scenario.imageless


def _check_early(request: PerfRequest) -> None:
    """A rule or a baseline that cannot be read stops the run before it starts, not after it."""
    from proctor.verdicts.gate.rules import load_rules
    from proctor.verdicts.perf.gate import read_baseline

    if request.gate:
        load_rules(request.gate)
    if request.baseline:
        read_baseline(request.baseline)


def _judge(request: PerfRequest, summary: dict[str, Any], run: PerfRun) -> GateResult:
    from proctor.verdicts.perf.gate import judge

    rows = documents.series(run)["episodes"]
    return judge(summary, rows, rules_file=request.gate, baseline_file=request.baseline)


def _charts(run: PerfRun) -> dict[str, tuple[str, bytes]]:
    from proctor.render.charts.perf import charts

    return charts(documents.summary(run), documents.metrics(run), documents.series(run))


def gather(
    request: PerfRequest,
    scenario: Scenario,
    episodes: Episodes,
    ready: ReadyRun,
    sampler: SystemSampler,
    began: float,
) -> PerfRun:
    """Everything the documents need, from the store and the run folder."""
    left = footprint(ready.folder)
    with ready.resources.stores.borrow() as store:
        info = store.run(ready.info.id)
        started = info.started_at or began
        found = _episodes(store.attempts(info.id), episodes, ready, left, started)
        found = [replace(each, options=_portable_options(each.options, scenario)) for each in found]
    gathered = tuple(with_queue(found, request.workers))
    system = sampler.to_mapping()
    return PerfRun(
        run_id=info.id,
        generated_at=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}Z",
        episodes=gathered,
        planned=request.episodes,
        workers=request.workers,
        timeout_s=request.timeout_s,
        strict_spec=request.strict_spec,
        compress=request.compress,
        scenario_name=scenario.name,
        scenario=tuple(_shown(entry.to_mapping(), scenario) for entry in scenario.entries),
        sandbox=ready.spec.sandbox.backend,
        system=system,
        run_artifacts=left.to_mapping(_relative(ready.folder)),
        prepare_s=max(0.0, started - began),
        environment=_portable(info.environment),
        vcs=info.vcs,
        versions=info.versions,
        growth=growth_checks(
            gathered,
            system["samples"],
            pass_length=episodes.pass_length,
            prepare_s=max(0.0, started - began),
        ),
    )


def _episodes(
    attempts: Iterator[Any], episodes: Episodes, ready: ReadyRun, left: Footprint, started: float
) -> list[Episode]:
    """The attempt that counts of each episode; how many there were before it is kept."""
    tries: dict[str, int] = {}
    found = []
    for row in attempts:
        tries[row.trial.key] = tries.get(row.trial.key, 0) + 1
        if not row.counts or row.record.outcome is Outcome.CANCELLED:
            continue
        trial, record = row.trial, row.record
        folder = attempt_folder(trial, record.number)
        found.append(
            episode(
                trial,
                record,
                expect=episodes.expect[trial.key],
                began=started,
                trace=read_trace(ready.folder / folder / "trajectory.json", record),
                attempts=tries[trial.key],
                ceilings=episodes.ceilings.get(trial.subject_digest, {}),
                artifact_bytes=sum(left.trials.get(each, 0) for each in {folder, trial_folder(trial)}),
            )
        )
    return found


def _shown(entry: dict[str, Any], scenario: Scenario) -> dict[str, Any]:
    """An entry without the folders of this machine."""
    options = json.loads(_portable_options(options_text(entry["options"]), scenario))
    return {**entry, "options": options}


def _portable_options(options: str, scenario: Scenario) -> str:
    """Options without the folders of this machine: those of the scenario, or of where it was started."""
    found = json.loads(options)
    for base in (f"{scenario.base_dir}/", f"{Path.cwd()}/"):
        for name, value in found.items():
            if isinstance(value, str):
                found[name] = value.removeprefix(base)
    return options_text(found)


def _portable(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The machine without its name and its folders: these files are shown to others."""
    found = {name: value for name, value in environment.items() if name != "hostname"}
    if isinstance(python := found.get("python"), Mapping):
        found["python"] = {name: value for name, value in python.items() if name != "executable"}
    return found


def _relative(path: Path) -> str:
    """The run folder as seen from here, where that is shorter."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
