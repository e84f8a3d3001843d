"""Judge lockstep pairs on both clocks: *same* needs both; where they differ, the answer says which changed.

The CPU clock sees computing and no waiting. The wall clock sees both, and whatever else the machine does, as
far as that cannot be taken out. Neither alone tells whether code became slower.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from statistics import median
from typing import Any, Literal

from proctor.analysis import lockstep
from proctor.analysis.clock import COMPUTES
from proctor.analysis.lockstep import (
    CLOCKS,
    ClockFinding,
    Rules,
    SelfCheck,
    Verdict,
    is_last,
    judge_values,
    log_ratio,
)
from proctor.model.lockstep import AT_ONCE, Clock, Pair, Slot

QUIET = 0.1
"""Share of the machine's CPU time that other programs may use while code that runs in parallel is judged on
the wall clock: how long its tasks wait for them cannot be told from how long they wait for each other."""

Changed = Literal["", "computing", "waiting", "both"]
_Share = Callable[[Sequence[Slot]], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What may be said after a look. The numbers are those of the clock that leads."""

    verdict: Verdict | None
    """None: go on."""
    clock: Clock
    changed: Changed = ""
    busy: float
    """Share of the time in which the code computed; above 1 on several CPUs."""
    parallel: bool = False
    """Its threads or processes ran at the same time: waiting for other programs could not be taken out."""
    margin: float
    pairs: int
    change: float
    low: float
    high: float
    level: float
    p_value: float
    """Over all looks so far and both clocks."""
    noise: float
    detectable: float
    pairs_needed: int | None = None
    reason: str = ""
    clocks: tuple[ClockFinding, ...] = ()
    """What each clock says by itself: CPU, then wall."""

    def on(self, clock: Clock) -> ClockFinding | None:
        """What one clock says; None in files of earlier versions."""
        return next((each for each in self.clocks if each.clock == clock), None)


def judge(pairs: Sequence[Pair], rules: Rules, *, final: bool = False) -> Finding:
    """Look at the pairs so far. Between looks the answer is to go on, unless this is all there will be."""
    a, b = in_parallel(pairs)
    parallel = a or b
    shares = busy_shares(pairs, parallel=parallel)
    cpu, wall = (
        judge_values(
            [log_ratio(pair, clock, parallel=parallel) for pair in pairs],
            rules,
            clock=clock,
            busy=max(shares),
            final=final,
        )
        for clock in CLOCKS
    )
    blind = parallel and median(pair.others for pair in pairs) > QUIET
    if blind and wall.verdict:
        wall = replace(wall, verdict=Verdict.INCONCLUSIVE, pairs_needed=None)
    last = is_last(len(pairs), rules, final=final)
    verdict = combine(cpu, None if blind else wall, last=last, reshaped=a != b)
    found = Finding(
        **_numbers(_leading(cpu, wall, min(shares), verdict)),
        verdict=verdict,
        changed=_changed(cpu, wall, min(1.0, max(shares)), verdict),
        busy=min(shares),
        parallel=parallel,
        clocks=(cpu, wall),
    )
    p_value = min(1.0, weighted_p(cpu), weighted_p(wall))
    return replace(found, p_value=p_value, pairs_needed=_pairs_needed(cpu, wall, verdict))


def combine(
    cpu: ClockFinding, wall: ClockFinding | None, *, last: bool, reshaped: bool = False
) -> Verdict | None:
    """One verdict of two clocks; None while more pairs may settle what is open.

    Without `wall`, the elapsed time cannot be judged. `reshaped`: only one side runs in parallel. It may
    compute more and take less time, so more computing alone does not make it slower.
    """
    verdict = _now(cpu, wall, reshaped=reshaped) if wall else _computing(cpu, reshaped=reshaped)
    if verdict is not None or not last:
        return verdict
    if wall and wall.verdict is Verdict.FASTER:
        return Verdict.FASTER
    if cpu.verdict is Verdict.SLOWER and not reshaped:
        return Verdict.SLOWER
    return Verdict.SAME_COMPUTING if cpu.is_alike else Verdict.INCONCLUSIVE


def _now(cpu: ClockFinding, wall: ClockFinding, *, reshaped: bool) -> Verdict | None:
    """What both say already. Where both are certain and opposed, the elapsed time gives the word."""
    if wall.is_different:
        known = wall.verdict is Verdict.SLOWER or cpu.is_different or cpu.is_alike
        return wall.verdict if known else None
    if cpu.verdict is Verdict.SLOWER:
        opposed = reshaped or wall.change < -max(wall.margin, wall.noise / math.sqrt(wall.pairs))
        return None if opposed and not wall.is_alike else Verdict.SLOWER
    if cpu.verdict is Verdict.FASTER:
        return Verdict.FASTER if wall.is_alike or wall.high < wall.margin else None
    if cpu.is_alike and wall.is_alike:
        return Verdict.SAME if cpu.verdict is wall.verdict is Verdict.SAME else Verdict.SMALL
    return None


def _computing(cpu: ClockFinding, *, reshaped: bool) -> Verdict | None:
    """What computing says by itself; no further pair would add anything about waiting."""
    if cpu.is_alike:
        return Verdict.SAME_COMPUTING
    if cpu.verdict is Verdict.SLOWER and not reshaped:
        return Verdict.SLOWER
    return Verdict.INCONCLUSIVE if cpu.is_different else None


def _changed(cpu: ClockFinding, wall: ClockFinding, busy: float, verdict: Verdict | None) -> Changed:
    """Which of computing and waiting makes the difference."""
    if verdict not in {Verdict.SLOWER, Verdict.FASTER}:
        return ""
    if not cpu.is_different:
        return "waiting"
    unexplained = abs(wall.change - busy * cpu.change)
    return "both" if wall.is_different and unexplained > wall.margin else "computing"


def _leading(cpu: ClockFinding, wall: ClockFinding, busy: float, verdict: Verdict | None) -> ClockFinding:
    """The clock whose numbers carry the verdict; of two, the more precise."""
    if verdict in {Verdict.SLOWER, Verdict.FASTER}:
        mine = [each for each in (cpu, wall) if each.verdict is verdict]
        if len(mine) == 1:
            return mine[0]
    if verdict is Verdict.SAME_COMPUTING:
        return cpu
    if verdict is Verdict.SMALL and cpu.verdict is not wall.verdict:
        return cpu if cpu.verdict is Verdict.SMALL else wall
    return cpu if busy >= COMPUTES else wall


def _numbers(found: ClockFinding) -> dict[str, Any]:
    shared = {each.name for each in fields(Finding)} - {"verdict"}
    return {name: value for name, value in asdict(found).items() if name in shared}


def weighted_p(found: ClockFinding) -> float:
    """A clock's p-value among both: what it may use of the error is its share."""
    return found.p_value / found.share


def _pairs_needed(cpu: ClockFinding, wall: ClockFinding, verdict: Verdict | None) -> int | None:
    """Enough for every clock that is still open; None when there is nothing open, or no number is enough."""
    if verdict not in {Verdict.INCONCLUSIVE, Verdict.SAME_COMPUTING}:
        return None
    needed = [each.pairs_needed for each in (cpu, wall) if not each.is_alike and not each.is_different]
    known = [each for each in needed if each is not None]
    return max(known) if known and len(known) == len(needed) else None


def in_parallel(pairs: Sequence[Pair]) -> tuple[bool, bool]:
    """Whether threads or processes of A, and of B, run or want to at the same time."""
    a, b = _of_sides(pairs, _at_once)
    return a > AT_ONCE, b > AT_ONCE


def busy_shares(pairs: Sequence[Pair], *, parallel: bool) -> tuple[float, float]:
    """The share of its time in which A, and B, computes."""
    return _of_sides(pairs, _busy_on_several if parallel else _busy)


def _of_sides(pairs: Sequence[Pair], share: _Share) -> tuple[float, float]:
    a, b = (median(share(getattr(pair, side)[pair.schedule.warmup :]) for pair in pairs) for side in "ab")
    return a, b


def _at_once(slots: Sequence[Slot]) -> float:
    return median(slot.at_once for slot in slots)


def _busy_on_several(slots: Sequence[Slot]) -> float:
    """How many of its tasks ran or wanted to, on average: load must not make the code look idle."""
    return median((slot.cpu_ns + slot.waited_ns) / max(slot.wall_ns, 1) for slot in slots)


def _busy(slots: Sequence[Slot]) -> float:
    """CPU time over the time in which the code could run; waiting behind other programs is not idleness."""
    shares = sorted(slot.cpu_ns / max(slot.elapsed_ns, 1) for slot in slots)
    kernel_tells = any(slot.waited_ns for slot in slots)
    return median(shares) if kernel_tells else shares[len(shares) * 3 // 4]


def confirms(first: Finding, pairs: Sequence[Pair]) -> bool:
    """Whether fresh pairs agree with an earlier finding, on the clock that led it."""
    values = [log_ratio(pair, first.clock, parallel=first.parallel) for pair in pairs]
    return lockstep.confirms(first.change, values)


def self_check(pairs: Sequence[Pair], finding: Finding, rules: Rules) -> SelfCheck:
    """Whether A differs from A, on either clock; the one that does is told, else the one that leads."""
    checks = {
        clock: lockstep.self_check(
            [log_ratio(pair, clock, parallel=finding.parallel) for pair in pairs],
            [log_ratio(pair, clock, aa=True, parallel=finding.parallel) for pair in pairs if pair.again],
            rules.margin_on(clock, finding.busy),
        )
        for clock in CLOCKS
    }
    failed = [check for check in checks.values() if not check.passed]
    return failed[0] if failed else checks[finding.clock]
