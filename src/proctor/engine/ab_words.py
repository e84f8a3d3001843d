"""The verdict on one point in one sentence: what changed, by how much, and what could not be judged."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.analysis.both_clocks import Finding
from proctor.analysis.lockstep import UNSETTLED, ClockFinding, Verdict
from proctor.engine.ab import PointResult
from proctor.quantity import confidence, decimals, duration


def sentence(result: PointResult, name: str = "B") -> str:
    """The verdict, its numbers and which of computing and waiting it is about; without the way out."""
    refused = result.finding.reason.startswith("no verdict")
    return ("A and B are identical: " if result.identical and not refused else "") + _sentence(result, name)


def _sentence(result: PointResult, name: str) -> str:
    finding, verdict = result.finding, result.verdict
    size, way = change(abs(finding.change))[1:], "slower" if finding.change > 0 else "faster"
    span = interval(finding)
    match verdict:
        case Verdict.SLOWER | Verdict.FASTER:
            return f"{verdict}: {name} is {size} {way} than A ({span}){_which(finding)}"
        case Verdict.SMALL:
            less = f"less than the margin of {finding.margin:.1%}"
            return f"small: {name} is {size} {way} than A ({span}), {less}"
        case Verdict.SAME:
            return f"same: {name} differs from A by less than {finding.margin:.1%} ({span}){_both(finding)}"
        case Verdict.SAME_COMPUTING:
            return f"same computing; waiting not judged: {_unclear(finding, name)}"
    if finding.reason.startswith("no verdict"):
        return finding.reason
    settled = "" if result.confirmed is False else _settled(finding)
    return f"inconclusive: {name} against A is {finding.change:+.1%} ({span}){settled}"


def interval(found: Finding | ClockFinding) -> str:
    """Both ends, after the level: that depends on how often the pairs are looked at, and on both clocks."""
    return f"{confidence(found.level)} interval {change(found.low)} to {change(found.high)}"


def change(fraction: float) -> str:
    """A change in percent with its sign; no change but none reads as none."""
    return f"{100 * fraction:+.{decimals(100 * fraction, 1)}f}%"


def _which(finding: Finding) -> str:
    """What is different: computing, waiting, or both."""
    cpu, wall = finding.on("cpu"), finding.on("wall")
    if cpu is None or wall is None or not finding.changed:
        return ""
    computes = "more" if cpu.change > 0 else "less"
    if cpu.is_different and wall.is_different and cpu.verdict is not wall.verdict:
        takes = "longer" if wall.change > 0 else "less time"
        return f": it computes {abs(cpu.change):.1%} {computes}, but takes {takes}"
    waits = "waits longer" if wall.change > 0 else "waits less or runs in parallel"
    if finding.changed == "waiting":
        return (
            f": it computes the same and {waits}" if cpu.is_alike else f": it {waits}; computing not judged"
        )
    if finding.changed == "both":
        return f": it computes {computes} and {waits}"
    if wall.is_different:
        return f": it computes {computes}"
    rest = "the elapsed time is the same" if wall.is_alike else "waiting not judged"
    return f": it computes {computes}; {rest}"


def _both(finding: Finding) -> str:
    other = finding.on("wall" if finding.clock == "cpu" else "cpu")
    if other is None:
        return ""
    what = "elapsed time" if other.clock == "wall" else "computing"
    return f"; {what} by less than {other.margin:.1%} ({interval(other)})"


def _unclear(finding: Finding, name: str) -> str:
    wall = finding.on("wall")
    computing = f"{name} computes as much as A to less than {finding.margin:.1%} ({interval(finding)})"
    if wall is None:
        return computing
    return f"{computing}, but how long it takes is unclear: {wall.change:+.1%} ({interval(wall)})"


def _settled(finding: Finding) -> str:
    """What one clock can say although there is no verdict."""
    cpu, wall = finding.on("cpu"), finding.on("wall")
    if cpu is None or wall is None:
        return ""
    if cpu.is_different:
        return f"; it computes {'more' if cpu.change > 0 else 'less'}, but how long it takes is unclear"
    if wall.is_alike:
        return "; the elapsed time is the same, but computing could not be judged"
    return ""


def whole_sentence(result: PointResult) -> str:
    """The verdict on one point, and what it would take to get one."""
    refused = result.finding.reason.startswith("no verdict")
    return sentence(result) + (_price(result) if result.verdict in UNSETTLED and not refused else "")


def _price(result: PointResult) -> str:
    finding = result.finding
    reason = f"; {finding.reason}" if finding.reason else ""
    if finding.pairs_needed is None:
        return f"{reason}; no number of pairs would be enough for {finding.margin:.1%} on this machine now"
    more = max(finding.pairs_needed - finding.pairs, 1)
    each_s = sum(pair.wall_s for pair in result.pairs) / len(result.pairs)
    price = f"{more} more pairs, {duration(more * each_s)}"
    return f"{reason}; it needs about {price} (--pairs {finding.pairs_needed})"


def counts(verdicts: Sequence[Verdict]) -> str:
    """How many of each, the most frequent first."""
    found = {verdict: verdicts.count(verdict) for verdict in verdicts}
    ordered = sorted(found.items(), key=lambda each: -each[1])
    return ", ".join(f"{count} {verdict.value}" for verdict, count in ordered)
