"""What a comparison says to a person: the verdict in one sentence, then the numbers it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor.cli.table import bold, print_table, seconds

if TYPE_CHECKING:
    from proctor.engine.ab import PointResult
    from proctor.engine.ab_run import Comparison


def print_comparison(comparison: Comparison) -> None:
    """The whole answer."""
    from proctor.engine.ab_file import call_s

    results = comparison.results
    print(bold(headline(comparison)))
    if len(results) == 1:
        _print_point(results[0], comparison)
    else:
        rows = [
            [
                result.label,
                result.verdict.value,
                f"{result.finding.change:+.1%}",
                f"{result.finding.low:+.1%} … {result.finding.high:+.1%}",
                seconds(call_s(result, "a")),
                seconds(call_s(result, "b")),
                result.finding.clock,
                len(result.pairs),
            ]
            for result in results
        ]
        print(f"  A  {comparison.a}\n  B  {comparison.b}")
        print_table(
            ["point", "verdict", "change", "interval", "A", "B", "clock", "pairs"],
            rows,
            right=(2, 3, 4, 5, 7),
        )
        for result in results:
            if result.finding.reason:
                print(f"  {result.label}: {result.finding.reason}")
    print(f"  cost     {comparison.cpu_s:.1f} s CPU, {comparison.wall_s:.1f} s")
    for note in comparison.notes:
        print(f"  note: {note}")


def headline(comparison: Comparison) -> str:
    """One sentence."""
    results = comparison.results
    if len(results) == 1:
        return sentence(results[0])
    counts: dict[str, int] = {}
    for result in results:
        counts[result.verdict.value] = counts.get(result.verdict.value, 0) + 1
    parts = ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), key=lambda each: -each[1]))
    return f"{comparison.verdict}: of {len(results)} points {parts}"


def sentence(result: PointResult) -> str:
    """The verdict on one point."""
    finding, verdict = result.finding, result.verdict.value
    size, way = abs(finding.change), "slower" if finding.change > 0 else "faster"
    span = f"{finding.low:+.1%} to {finding.high:+.1%}"
    match verdict:
        case "slower" | "faster":
            return f"{verdict}: B is {size:.1%} {way} than A ({span})"
        case "small":
            return (
                f"small: B is {size:.1%} {way} than A ({span}), less than the margin of {finding.margin:.1%}"
            )
        case "same":
            return f"same: B differs from A by less than {finding.margin:.1%} ({span})"
    if finding.reason.startswith("no verdict"):
        return finding.reason
    return f"inconclusive: B against A is {finding.change:+.1%} ({span}){_price(result)}"


def _price(result: PointResult) -> str:
    finding = result.finding
    reason = f"; {finding.reason}" if finding.reason else ""
    if finding.pairs_needed is None:
        return f"{reason}; no number of pairs would settle {finding.margin:.1%} on this machine now"
    more = max(finding.pairs_needed - finding.pairs, 1)
    each_s = sum(pair.wall_s for pair in result.pairs) / len(result.pairs)
    price = f"{more} more pairs, {seconds(more * each_s)}"
    return f"{reason}; it needs about {price} (--pairs {finding.pairs_needed})"


def _print_point(result: PointResult, comparison: Comparison) -> None:
    from proctor.engine.ab_file import call_s

    finding, check = result.finding, result.check
    fresh = sum(pair.confirms for pair in result.pairs)
    width = max(len(comparison.a), len(comparison.b))
    print(f"  {result.label}")
    print(f"  A  {comparison.a:{width}}  {seconds(call_s(result, 'a'))} per call")
    print(f"  B  {comparison.b:{width}}  {seconds(call_s(result, 'b'))} per call")
    clock = (
        "CPU, since it computes" if finding.clock == "cpu" else "wall, since it waits; the margin is wider"
    )
    print(f"  ratio    {1 + finding.change:.4f} ({1 + finding.low:.4f} to {1 + finding.high:.4f})")
    print(f"  clock    {clock} (busy {finding.busy:.0%})")
    confirmed = {True: f", confirmed by {fresh} more", False: f", not confirmed by {fresh} more", None: ""}
    print(f"  pairs    {finding.pairs}{confirmed[result.confirmed]}; margin ±{finding.margin:.1%}")
    print(f"  noise    {finding.noise:.2%} per pair; a change of {finding.detectable:.1%} would be found")
    if check.pairs > 1:
        state = "passed" if check.passed else "FAILED"
        print(f"  A/A      {state}: {check.change:+.2%} over {check.pairs} pairs")
