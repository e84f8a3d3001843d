"""What a comparison says to a person: the verdict in one sentence, then its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor.cli.table import line_width, print_table, say, seconds
from proctor.render.layout import shorten

if TYPE_CHECKING:
    from proctor.analysis.both_clocks import Finding
    from proctor.analysis.lockstep import ClockFinding
    from proctor.engine.ab import PointResult
    from proctor.engine.ab_run import Comparison


def print_comparison(comparison: Comparison) -> None:
    """The whole answer."""
    results = comparison.results
    say(headline(comparison), heading=True)
    if len(results) == 1:
        _print_point(results[0], comparison)
    else:
        _print_points(comparison)
    print(f"  cost     {comparison.cpu_s:.1f} s CPU, {comparison.wall_s:.1f} s")
    for note in comparison.notes:
        say(f"  note: {note}", indent="  ")


def _print_points(comparison: Comparison) -> None:
    """A row for each point, and the reasons of those without a verdict."""
    from proctor.engine.ab_file import call_s
    from proctor.render.labels import apart, heading

    results = comparison.results
    shared, own = apart([result.label for result in results])
    head, labels = heading(own)
    rows = [
        [
            label,
            result.verdict.value,
            f"{result.finding.change:+.1%}",
            f"{result.finding.low:+.1%} … {result.finding.high:+.1%}",
            seconds(call_s(result, "a")),
            seconds(call_s(result, "b")),
            CLOCKS[result.finding.clock],
            len(result.pairs),
        ]
        for result, label in zip(results, labels, strict=True)
    ]
    say(f"  A  {comparison.a}", indent="   ")
    say(f"  B  {comparison.b}", indent="   ")
    if "=" in shared:
        say(f"  fixed: {shared}", indent="  ")
    headers = [head, "verdict", "change", "interval", "A", "B", "clock", "pairs"]
    print_table(headers, rows, right=(2, 3, 4, 5, 7), whole=(1, 6), wrap=(0,))
    for result, label in zip(results, own, strict=True):
        if result.finding.reason:
            say(f"  {label}: {result.finding.reason}", indent="  ")


def headline(comparison: Comparison) -> str:
    """One sentence."""
    results = comparison.results
    if len(results) == 1:
        return sentence(results[0])
    counts: dict[str, int] = {}
    for result in results:
        counts[result.verdict.value] = counts.get(result.verdict.value, 0) + 1
    parts = ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda each: -each[1]))
    return f"{comparison.verdict}: {len(results)} points, {parts}"


def sentence(result: PointResult) -> str:
    """The verdict on one point, and what it would take to get one."""
    from proctor.analysis.lockstep import UNSETTLED
    from proctor.engine.ab_words import sentence as said

    refused = result.finding.reason.startswith("no verdict")
    return said(result) + (_price(result) if result.verdict in UNSETTLED and not refused else "")


def _price(result: PointResult) -> str:
    finding = result.finding
    reason = f"; {finding.reason}" if finding.reason else ""
    if finding.pairs_needed is None:
        return f"{reason}; no number of pairs would be enough for {finding.margin:.1%} on this machine now"
    more = max(finding.pairs_needed - finding.pairs, 1)
    each_s = sum(pair.wall_s for pair in result.pairs) / len(result.pairs)
    price = f"{more} more pairs, {seconds(more * each_s)}"
    return f"{reason}; it needs about {price} (--pairs {finding.pairs_needed})"


CLOCKS = {"cpu": "CPU", "wall": "elapsed"}


def _clock(found: ClockFinding, finding: Finding) -> str:
    """What one clock says by itself."""
    from proctor.engine.ab_words import interval

    if found.clock == "cpu":
        what = f"computing, children included; busy {finding.busy:.0%}"
    elif finding.parallel:
        what = "it runs in parallel: waiting for other programs is included"
    else:
        what = "without waiting for other programs"
    verdict = found.verdict.value if found.verdict else "inconclusive"
    return f"{found.change:+.1%} ({interval(found)}), margin ±{found.margin:.1%}: {verdict}; {what}"


def _print_point(result: PointResult, comparison: Comparison) -> None:
    from proctor.engine.ab_file import call_s

    finding, check = result.finding, result.check
    fresh = sum(pair.confirms for pair in result.pairs)
    room = (line_width() or 10_000) - 28
    a, b = shorten(comparison.a, room), shorten(comparison.b, room)
    width = max(len(a), len(b))
    say(f"  {result.label}", indent="  ")
    print(f"  A  {a:{width}}  {seconds(call_s(result, 'a'))} per call")
    print(f"  B  {b:{width}}  {seconds(call_s(result, 'b'))} per call")
    print(f"  ratio    {1 + finding.change:.4f} ({1 + finding.low:.4f} to {1 + finding.high:.4f})")
    for clock in finding.clocks:
        say(f"  {CLOCKS[clock.clock]:8} {_clock(clock, finding)}", indent="           ")
    confirmed = {True: f", confirmed by {fresh} more", False: f", not confirmed by {fresh} more", None: ""}
    print(f"  pairs    {finding.pairs}{confirmed[result.confirmed]}; margin ±{finding.margin:.1%}")
    say(f"  noise    {finding.noise:.2%} per pair; a change of {finding.detectable:.1%} would be detected")
    if check.pairs > 1:
        state = "passed" if check.passed else "FAILED"
        print(f"  A/A      {state}: {check.change:+.2%} over {check.pairs} pairs")
