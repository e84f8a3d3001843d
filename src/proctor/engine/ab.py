"""Compare two sides: measure pairs, look, stop, correct for many points, confirm.

The driver knows nothing about processes: it is given a function that measures one pair, so recorded or
invented pairs serve as well as real ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from proctor.analysis.both_clocks import Finding, confirms, judge, self_check
from proctor.analysis.lockstep import (
    CONFIRM_LOOKS,
    DIFFERENT,
    FEWEST_PAIRS,
    UNSETTLED,
    Rules,
    SelfCheck,
    Verdict,
)
from proctor.analysis.p_values import holm
from proctor.errors import SideError
from proctor.model.lockstep import Calibration, Pair

USUAL_CPU_S = 12.0
"""Maximum CPU seconds at one point, confirmation included."""
LONG_PAIRS = 30
"""… or as many pairs, where single calls are so long that this takes more."""
AGAIN_EVERY = 4
"""One in this many pairs also has a second A worker (an A/A pair)."""
_AGAIN_AT = (1, 0, 3, 2, 0, 1, 2, 3)
"""Which of four it is, in turn. Pairs take the CPUs one after the other: always at the same place, the A/A
pairs of a machine with two or four CPUs would all be on one."""
_START_S = 0.1
"""CPU time of starting the processes of a pair."""
_BEGINNING = 3
"""Cost of starting and probing both sides, in pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One pair to measure."""

    point: int
    number: int
    again: bool = False
    confirms: bool = False


Measure = Callable[[Order], Pair]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a comparison."""

    point: int
    points: int
    label: str
    pairs: int
    most: int
    confirming: bool = False
    change: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PointResult:
    """What was found at one parameter point, with everything it was found from."""

    label: str
    params: Mapping[str, Any]
    finding: Finding
    check: SelfCheck
    pairs: tuple[Pair, ...]
    """Those that confirm are among them, marked."""
    confirmed: bool | None = None
    """None: there was nothing to confirm, or confirmation was switched off."""
    calibration: Calibration | None = None
    identical: bool = False
    """Whether both sides ran the same code on the same files: then no difference is the code's."""

    @property
    def verdict(self) -> Verdict:
        """The verdict on this point."""
        return self.finding.verdict or Verdict.INCONCLUSIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How to compare, apart from the rules of judging."""

    rules: Rules = field(default_factory=Rules)
    confirm: bool = True
    time_budget_s: float | None = None
    """For all points together."""
    cpu_budget_s: float | None = None
    """For each point, its confirmation included."""
    thrifty: bool = False
    """Without a budget of CPU: spend the usual one."""

    def cpu_s(self, point: Subpoint) -> float | None:
        """What may be spent on a point."""
        if self.cpu_budget_s is not None or not self.thrifty:
            return self.cpu_budget_s
        if point.calibration is None:
            return None
        schedule = point.calibration.schedule
        calls = (schedule.loops + schedule.lead) * (schedule.warmup + schedule.kept)
        return max(USUAL_CPU_S, LONG_PAIRS * (_START_S + 2 * calls * point.calibration.call_cpu_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Subpoint:
    """One parameter point to compare."""

    label: str
    params: Mapping[str, Any] = field(default_factory=dict)
    calibration: Calibration | None = None
    identical: bool = False


def compare(
    points: Sequence[Subpoint],
    asked: Asked,
    measure: Measure,
    *,
    on_progress: Callable[[Progress], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
    on_lost: Callable[[Subpoint, SideError], None] | None = None,
) -> list[PointResult]:
    """The whole comparison, point by point; then Holm over the points; then the confirmations.

    With `on_lost` a point that cannot be measured is told there, and the others go on.
    """
    asked = replace(asked, rules=replace(asked.rules, points=len(points)))
    started = clock()
    results, places = list[PointResult](), list[int]()
    for index, point in enumerate(points):
        deadline = None
        if asked.time_budget_s is not None:
            left_s = asked.time_budget_s - (clock() - started)
            deadline = clock() + left_s / (len(points) - index)
        driver = _Driver(index, len(points), point, asked, measure, on_progress, clock)
        try:
            results.append(driver.run(deadline))
            places.append(index)
        except SideError as error:
            if on_lost is None:
                raise
            on_lost(point, error)
    results = corrected(results)
    if asked.confirm:
        for at, (index, result) in enumerate(zip(places, results, strict=True)):
            driver = _Driver(index, len(points), points[index], asked, measure, on_progress, clock)
            results[at] = driver.confirm(result)
    return results


class _Driver:
    """Measures one point."""

    def __init__(
        self,
        index: int,
        count: int,
        point: Subpoint,
        asked: Asked,
        measure: Measure,
        on_progress: Callable[[Progress], None],
        clock: Callable[[], float],
    ) -> None:
        self.index, self.count, self.point, self.asked = index, count, point, asked
        self.measure, self.on_progress, self.clock = measure, on_progress, clock
        self.budget_s = asked.cpu_s(point)

    def _affords(self, pairs: Sequence[Pair], more: int) -> bool:
        """Whether this many more pairs are within the CPU budget."""
        if self.budget_s is None:
            return True
        spent_s = sum(pair.cpu_s for pair in pairs)
        return spent_s + (more + _BEGINNING) * spent_s / len(pairs) <= self.budget_s

    def run(self, deadline: float | None) -> PointResult:
        """Measure until there is a verdict, or the pairs or the time are used up."""
        rules, pairs = self.asked.rules, list[Pair]()
        finding: Finding | None = None
        while finding is None or finding.verdict is None:
            self._tell(len(pairs), rules.looks[-1], finding)
            number = len(pairs)
            pairs.append(self.measure(Order(point=self.index, number=number, again=is_aa(number))))
            late = deadline is not None and self.clock() + _typical_s(pairs) > deadline
            dear = not self._affords(pairs, 1 + (CONFIRM_LOOKS[0] if self.asked.confirm else 0))
            if len(pairs) < FEWEST_PAIRS or not (late or dear or len(pairs) in rules.looks):
                continue
            finding = judge(pairs, rules, final=late or dear)
            if finding.verdict in UNSETTLED and (late or (dear and len(pairs) < rules.looks[-1])):
                what = "time budget" if late else f"budget of {self.budget_s:g} s CPU"
                finding = replace(finding, reason=f"the {what} was spent")
        check = self_check(pairs, finding, rules)
        return PointResult(
            label=self.point.label,
            params=self.point.params,
            finding=finding if check.passed else refused(finding, check),
            check=check,
            pairs=tuple(pairs),
            calibration=self.point.calibration,
            identical=self.point.identical,
        )

    def confirm(self, result: PointResult) -> PointResult:
        """See a difference again with fresh processes on another CPU, or take it back."""
        if result.verdict not in DIFFERENT:
            return result
        fresh: list[Pair] = []
        agreed = False
        for look in CONFIRM_LOOKS:
            if fresh and not self._affords([*result.pairs, *fresh], look - len(fresh)):
                break
            while len(fresh) < look:
                self._tell(len(fresh), CONFIRM_LOOKS[-1], result.finding, confirming=True)
                number = len(result.pairs) + len(fresh) + 1
                fresh.append(self.measure(Order(point=self.index, number=number, confirms=True)))
            agreed = confirms(result.finding, fresh)
            if agreed:
                break
        finding = result.finding if agreed else unconfirmed(result.finding)
        return replace(result, finding=finding, pairs=(*result.pairs, *fresh), confirmed=agreed)

    def _tell(self, pairs: int, most: int, finding: Finding | None, *, confirming: bool = False) -> None:
        change = finding.change if finding else None
        self.on_progress(
            Progress(
                point=self.index,
                points=self.count,
                label=self.point.label,
                pairs=pairs,
                most=most,
                confirming=confirming,
                change=change,
            )
        )


def is_aa(number: int) -> bool:
    """Whether a pair has a second A."""
    four, place = divmod(number, AGAIN_EVERY)
    return place == _AGAIN_AT[four % len(_AGAIN_AT)]


def refused(finding: Finding, check: SelfCheck) -> Finding:
    """No verdict: the measurement differs from itself."""
    return replace(
        finding,
        verdict=Verdict.INCONCLUSIVE,
        changed="",
        pairs_needed=None,
        reason=f"no verdict: A differs from itself by {check.change:+.1%} in {check.pairs} A/A pairs, "
        "so measurements on this machine are not reliable now",
    )


def unconfirmed(finding: Finding) -> Finding:
    """A difference that was seen once."""
    return replace(
        finding,
        verdict=Verdict.INCONCLUSIVE,
        changed="",
        reason=f"'{finding.verdict}' was seen once, but fresh processes did not confirm it",
    )


def corrected(results: Sequence[PointResult]) -> list[PointResult]:
    """The p-values of all points together (Holm). Identical code never differs.

    The verdicts stay: each used its part of the error already, and their intervals show it.
    """
    adjusted = holm([result.finding.p_value for result in results])
    several = len(results) > 1
    return [
        without_difference(
            replace(result, finding=replace(result.finding, p_value=p_value)) if several else result
        )
        for result, p_value in zip(results, adjusted, strict=True)
    ]


def without_difference(result: PointResult) -> PointResult:
    """What was measured of identical code: the same, or how far the measurement was off."""
    finding = result.finding
    if not result.identical or finding.verdict not in DIFFERENT:
        return result
    inside = all(max(-clock.low, clock.high) < clock.margin for clock in finding.clocks)
    if finding.clocks and inside:
        return replace(result, finding=replace(finding, verdict=Verdict.SAME, changed=""))
    reason = (
        f"no verdict: A and B are identical code, so the {finding.change:+.1%} that was measured is the "
        "machine's and not the code's"
    )
    changed = replace(finding, verdict=Verdict.INCONCLUSIVE, changed="", pairs_needed=None, reason=reason)
    return replace(result, finding=changed)


def overall(results: Sequence[PointResult]) -> Verdict:
    """One verdict over all points: bad news first, then doubt, then good news."""
    found = {result.verdict for result in results}
    order = (Verdict.SLOWER, Verdict.INCONCLUSIVE, Verdict.SAME_COMPUTING, Verdict.FASTER, Verdict.SMALL)
    return next((verdict for verdict in order if verdict in found), Verdict.SAME)


def _typical_s(pairs: Sequence[Pair]) -> float:
    return sorted(pair.wall_s for pair in pairs)[len(pairs) // 2]


def rejudge(result: PointResult, rules: Rules, *, confirm: bool = True) -> PointResult:
    """Judge recorded pairs again, look by look, under other rules or in a test."""
    pairs = [pair for pair in result.pairs if not pair.confirms]
    fresh = [pair for pair in result.pairs if pair.confirms]
    findings = (judge(pairs[:look], rules) for look in rules.looks if FEWEST_PAIRS <= look <= len(pairs))
    finding = next((each for each in findings if each.verdict), None) or judge(pairs, rules, final=True)
    check = self_check(pairs, finding, rules)
    agreed = None
    if not check.passed:
        finding = refused(finding, check)
    elif confirm and finding.verdict in DIFFERENT and len(fresh) >= CONFIRM_LOOKS[0]:
        agreed = any(confirms(finding, fresh[:look]) for look in CONFIRM_LOOKS if look <= len(fresh))
        finding = finding if agreed else unconfirmed(finding)
    return replace(result, finding=finding, check=check, confirmed=agreed)
