"""A comparison with real processes: from a spec and two sides to results."""

from __future__ import annotations

import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from proctor.analysis.lockstep import Verdict
from proctor.engine.ab import Asked, Order, PointResult, Progress, Subpoint, compare, overall
from proctor.errors import SideError, UsageError
from proctor.experiments.base import Registered
from proctor.experiments.describe import info
from proctor.experiments.discover import find
from proctor.experiments.suites.suite import SuiteBenchmark
from proctor.model.lockstep import AT_ONCE, Calibration, Pair
from proctor.model.spec import Spec
from proctor.processes import allowed_cpus
from proctor.spec.sweep import points
from proctor.trial.lockstep.measure import DEFAULT_TIMEOUT_S, ProbedSide, Turn, measure_pair, probe
from proctor.trial.lockstep.process import Side
from proctor.trial.lockstep.sides import (
    ComparedExperiment,
    SideCode,
    SideRequest,
    make_side,
    placed,
    same_code,
)
from proctor.trial.lockstep.worktree import Project, find_project

SAME_CODE = "both sides are the same code: this measures the noise"
_ADDR_NO_RANDOMIZE = 0x0040000
_TRACEBACK = "\nTraceback (most recent call last)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sides compared at every parameter point of a spec."""

    name: str
    a: str
    b: str
    asked: Asked
    results: tuple[PointResult, ...]
    notes: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    """Points that could not be compared, each with the reason."""
    cpu_s: float = 0.0
    wall_s: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """One verdict for all points."""
        return overall(self.results)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """What is compared."""

    spec: Spec
    sources: tuple[str, ...]
    """Where the experiments are found."""
    a: SideRequest
    b: SideRequest
    slow: float = 0.0
    """Deliberate slowness of side B."""
    pin: bool = True
    first_point_only: bool = False
    project: Project | None = None
    """Whose code is compared, if it is not the project around the spec."""
    goes_on: bool = False
    """Whether a point that fails is only told, as one benchmark of many."""
    python: str | None = None
    """The interpreter of a side that names none."""
    tests_itself: bool = False
    """Whether a false verdict on identical code is what is looked for, and must show."""
    installed: bool = False
    """Whether the code is what each side's interpreter has installed, and not the project's folder."""


def run(
    contest: Contest,
    asked: Asked,
    *,
    on_progress: Callable[[Progress], None] = lambda _: None,
    rng: random.Random | None = None,
) -> Comparison:
    """Check out, calibrate, compare; afterwards no process and no worktree is left."""
    started, spent = time.monotonic(), _cpu_s()
    with opened(contest, rng) as (bench, notes):
        lost = _Lost(goes_on=contest.goes_on)
        subpoints = _calibrated(bench, lost)
        results = compare(subpoints, asked, bench.measure, on_progress=on_progress, on_lost=lost)
        lost.refuse_nothing(results)
    return Comparison(
        name=contest.spec.name,
        a=bench.duels[0].a.label,
        b=bench.duels[0].b.label + (f", {contest.slow:.1%} slower on purpose" if contest.slow else ""),
        asked=asked,
        results=tuple(results),
        # That it is the same code comes first.
        notes=tuple(sorted((*notes, *bench.notes), key=lambda note: note != SAME_CODE)),
        lost=tuple(lost.said),
        cpu_s=_cpu_s() - spent,
        wall_s=time.monotonic() - started,
    )


class _Lost:
    """Hears of points that cannot be compared; where none may be lost, that ends the comparison."""

    def __init__(self, *, goes_on: bool) -> None:
        self.goes_on = goes_on
        self.said: list[str] = []

    def __call__(self, point: Subpoint, error: SideError) -> None:
        if not self.goes_on:
            raise error
        self.said.append(f"{point.label}: {str(error).partition(_TRACEBACK)[0].strip()}")

    def refuse_nothing(self, results: Sequence[PointResult | Subpoint]) -> None:
        """A comparison of nothing has no verdict."""
        if not results:
            raise SideError("nothing could be compared:\n" + "\n".join(f"  {each}" for each in self.said))


def _calibrated(bench: Bench, lost: _Lost) -> list[Subpoint]:
    """Every point that runs on both sides; the others are taken out."""
    subpoints = list[Subpoint]()
    while len(subpoints) < len(bench.duels):
        number = len(subpoints)
        try:
            subpoints.append(bench.calibrate(number))
        except SideError as error:
            lost(Subpoint(label=bench.duels[number].label), error)
            del bench.duels[number]
    lost.refuse_nothing(subpoints)
    return subpoints


@contextmanager
def opened(contest: Contest, rng: random.Random | None = None) -> Iterator[tuple[Bench, list[str]]]:
    """Where the pairs of a contest are measured, with what was checked out for it; and remarks about it."""
    project = contest.project or find_project(Path(contest.spec.base_dir))
    with ExitStack() as stack:
        (a, b), notes = stack.enter_context(placed(contest.a, contest.b, project, contest.python))
        pycache = ""
        if os.environ.get("PYTHONDONTWRITEBYTECODE"):
            pycache = stack.enter_context(tempfile.TemporaryDirectory(prefix="pyc-", dir=a.scratch))
        duels = _duels(contest, a, b, pycache)
        notes += _borrowed(duels)
        if not _addresses_are_random():
            notes.append("addresses are not randomised on this machine; layouts differ less than elsewhere")
        timeout_s = contest.spec.timeout_s or DEFAULT_TIMEOUT_S
        bench = Bench(duels, pin=contest.pin, timeout_s=timeout_s, rng=rng or random.SystemRandom())
        bench.same_code = not contest.slow and same_code(a, b, project)
        bench.tests_itself = contest.tests_itself
        yield bench, notes


def _addresses_are_random() -> bool:
    """Whether the kernel draws where a process's memory begins, and nobody switched that off for us."""
    try:
        drawn = Path("/proc/sys/kernel/randomize_va_space").read_text().strip() != "0"
        return drawn and not int(Path("/proc/self/personality").read_text(), 16) & _ADDR_NO_RANDOMIZE
    except (OSError, ValueError):
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Duel:
    """The two sides at one parameter point."""

    label: str
    params: dict[str, Any]
    a: Side
    b: Side


def _duels(contest: Contest, a: SideCode, b: SideCode, pycache: str) -> list[_Duel]:
    spec = contest.spec
    if not spec.experiments:
        raise UsageError(
            f"{spec.name}: only experiments can be compared in lockstep, but this spec has tasks"
        )
    duels = []
    project = contest.project or find_project(Path(spec.base_dir))
    known: dict[str, Registered] = {}
    for body in spec.experiments:
        if body.experiment not in known:
            with _importable(project.root, a.root):
                known[body.experiment] = find(body.experiment, contest.sources)
        registered = known[body.experiment]
        subject = ComparedExperiment(
            registered=registered,
            sources=contest.sources,
            project=project,
            seed=spec.seed,
            gc=body.gc == "enabled",
            installed=contest.installed,
        )
        # Defaults are left to each side: they may be what changed. What both sides set does not vary.
        written = {*body.params, *body.sweep} - (a.params.keys() & b.params.keys())
        seen: list[dict[str, Any]] = []
        for point in points(body, info(registered), spec.seed):
            params = {name: value for name, value in point.items() if name in written}
            if params in seen:
                continue
            seen.append(params)
            duels.append(
                _Duel(
                    label=_label(registered, params),
                    params=params,
                    a=make_side(a, b, subject, params, pycache),
                    b=replace(make_side(b, a, subject, params, pycache), slow=contest.slow),
                )
            )
    return duels[:1] if contest.first_point_only else duels


def _label(registered: Registered, params: Mapping[str, Any]) -> str:
    """A benchmark of a suite has the name that its suite gives it."""
    if issubclass(registered.cls, SuiteBenchmark):
        return registered.cls.label_of(params)
    inside = ", ".join(f"{name}={value}" for name, value in params.items())
    return f"{registered.slug}({inside})" if inside else registered.slug


@contextmanager
def _importable(*roots: Path) -> Iterator[None]:
    """Let an experiment import the project as it will in a worker, after everything installed."""
    before = list(sys.path)
    sys.path.extend(str(folder) for root in roots for folder in (root / "src", root) if folder.is_dir())
    try:
        yield
    finally:
        sys.path[:] = before


def _borrowed(duels: Sequence[_Duel]) -> list[str]:
    """Say when a side lacks the experiment and runs the working tree's."""
    return [
        f"side {side.name} has no {Path(side.file).name} of its own; it runs {side.file}"
        for side in (duels[0].a, duels[0].b)
        if side.file and not Path(side.file).is_relative_to(side.root)
    ]


class Bench:
    """Where pairs are measured: which CPU, how long a slot, how long at most."""

    def __init__(self, duels: Sequence[_Duel], *, pin: bool, timeout_s: float, rng: random.Random) -> None:
        self.duels = list(duels)
        self.timeout_s = timeout_s
        self.rng = rng
        self.cpus: tuple[int, ...] = allowed_cpus() if pin else ()
        self.calibrations: list[Calibration] = []
        self.notes: list[str] = []
        self.same_code = False
        """Whether both sides are one folder or one commit, so that what they read is the same as well."""
        self.tests_itself = False
        self.spread: set[int] = set()
        """Points whose code uses several CPUs: its pairs are not pinned to one."""

    def calibrate(self, number: int) -> Subpoint:
        """Prove that both sides run, and fit the slots to side A."""
        duel = self.duels[number]
        cpu = self.cpus[0] if self.cpus else None
        a, b = self._probed(duel, cpu)
        calibration = a.calibration
        if cpu is not None and max(calibration.at_once, b.calibration.at_once) > AT_ONCE:
            self.spread.add(number)
            self.notes.append(f"{duel.label} runs in parallel: its pairs are not pinned to one CPU")
        self.duels[number] = replace(duel, a=a.side, b=b.side)
        self.notes += [f"{duel.label}: {each}" for each in calibration.notes]
        self.calibrations.append(calibration)
        identical = self._are_identical(a, b)
        if identical and SAME_CODE not in self.notes:
            self.notes.insert(0, SAME_CODE)
        return Subpoint(
            label=duel.label,
            params=duel.params,
            calibration=calibration,
            identical=identical and not self.tests_itself,
        )

    def _probed(self, duel: _Duel, cpu: int | None) -> tuple[ProbedSide, ProbedSide]:
        """Both sides at the path that they share; where code needs its own, at that, which is noted."""
        began = time.monotonic()
        try:
            a, b = self._probe(duel.a, cpu), self._probe(duel.b, cpu)
        except SideError:
            moved = any(side.seen_root != side.root for side in (duel.a, duel.b))
            if not moved or time.monotonic() - began > self.timeout_s:
                raise
            with suppress(SideError):
                return self._at_their_own_paths(duel, cpu)
            raise
        for probed in (a, b):
            if probed.runs_elsewhere:
                self._note(
                    f"side {probed.side.name} imports its code from {probed.side.root} itself, and not from "
                    "the path of both sides; what a path does to the speed is not excluded"
                )
                a, b = (replace(each, side=replace(each.side, paths="different")) for each in (a, b))
        return a, b

    def _at_their_own_paths(self, duel: _Duel, cpu: int | None) -> tuple[ProbedSide, ProbedSide]:
        sides = (replace(side, seen=None, paths="different") for side in (duel.a, duel.b))
        a, b = (self._probe(side, cpu) for side in sides)
        self._note(
            "the code does not run at a path of both sides, so each side is measured at its own; what a path "
            "does to the speed is not excluded"
        )
        return a, b

    def _probe(self, side: Side, cpu: int | None) -> ProbedSide:
        return probe(side, cpu=cpu, rng=self.rng, timeout_s=self.timeout_s)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _are_identical(self, a: ProbedSide, b: ProbedSide) -> bool:
        """Whether both ran the same code, on the same files, in the same way."""
        if (a.side.python, a.side.params, a.side.slow) != (b.side.python, b.side.params, b.side.slow):
            return False
        return a.content == b.content if a.content and b.content else self.same_code

    def measure(self, order: Order) -> Pair:
        """One pair; the next one is on the next CPU."""
        duel = self.duels[order.point]
        cpus = () if order.point in self.spread else self.cpus
        cpu = cpus[(order.number + order.point) % len(cpus)] if cpus else None
        turn = Turn(number=order.number, cpu=cpu, again=order.again, confirms=order.confirms)
        calibration = self.calibrations[order.point]
        pair = measure_pair(duel.a, duel.b, turn, calibration, rng=self.rng, timeout_s=self.timeout_s)
        if cpu is not None and pair.cpu is None:
            self.cpus = ()
            self.notes.append("processes cannot be pinned to a CPU on this machine; pairs are noisier")
        return pair


def _cpu_s() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
