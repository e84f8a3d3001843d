"""What `proctor time` prints: the verdict in one sentence, then the numbers it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from proctor.cli.table import bold, print_table, printable, seconds

if TYPE_CHECKING:
    from proctor.analysis.both_clocks import Finding
    from proctor.engine.ab import PointResult
    from proctor.engine.time_commands import Timed
    from proctor.engine.time_statements import TimedStatements

SHELL_SHARE = 0.05
"""From here on a reader should know how much of a time is the shell's own."""


def print_timed(timed: Timed) -> None:
    """Commands."""
    names = [command.name for command in timed.study.commands]
    for place, result in enumerate(timed.results):
        print(bold(_sentence(result, letter(place + 1))))
        print(f"  {_clocks(result.finding)}")
    _print_names(names)
    walls = [[each.wall_ns / 1e9 for each in runs] for runs in timed.executions]
    cpus = [[each.cpu_ns / 1e9 for each in runs] for runs in timed.executions]
    _print_numbers(walls, cpus, "runs")
    for note in _notes(timed, walls):
        print(f"note: {note}")


def print_statements(timed: TimedStatements) -> None:
    """Statements."""
    for place, comparison in enumerate(timed.comparisons):
        print(bold(_sentence(comparison.results[0], letter(place + 1))))
        print(f"  {_clocks(comparison.results[0].finding)}")
    _print_names(timed.asked.names)
    _print_numbers(timed.wall_s, timed.cpu_s, "processes")
    print(f"times are of one execution; {timed.number:,} were timed together")


def letter(place: int) -> str:
    """A, B, C …; from the 27th on a number."""
    return chr(ord("A") + place) if place < 26 else str(place + 1)


def _sentence(result: PointResult, name: str) -> str:
    from proctor.analysis.lockstep import UNSETTLED
    from proctor.engine.ab_words import sentence

    finding, text = result.finding, sentence(result, name)
    if result.verdict in UNSETTLED:
        text += f"; a change of {finding.detectable:.1%} would be detected"
        if finding.pairs_needed:
            text += f"; --max-pairs {finding.pairs_needed} would probably settle it"
    return f"{text}; {finding.reason}" if finding.reason not in {"", text} else text


def _clocks(finding: Finding) -> str:
    """Both clocks, each with its interval and its own verdict."""
    from proctor.engine.ab_words import interval

    return "; ".join(
        f"{_clock(each.clock)} {each.change:+.1%} ({interval(each)}): "
        f"{each.verdict.value if each.verdict else 'inconclusive'}"
        for each in finding.clocks
    )


def _clock(name: str) -> str:
    return "CPU time" if name == "cpu" else "elapsed time"


def _print_names(names: Sequence[str]) -> None:
    for place, name in enumerate(names):
        print(f"{letter(place)}  {printable(name)}")


def _print_numbers(walls: Sequence[Sequence[float]], cpus: Sequence[Sequence[float]], what: str) -> None:
    from proctor.engine.time_file import describe

    rows = []
    for place, clocks in enumerate(zip(walls, cpus, strict=True)):
        for title, values in zip(("wall", "CPU"), clocks, strict=True):
            if not values:
                continue
            found = describe(values)
            interval = "–" if found.low is None else f"{seconds(found.low)} … {seconds(found.high)}"
            rows.append(
                (
                    f"{letter(place)} {title}",
                    seconds(found.median),
                    seconds(found.mean),
                    interval,
                    seconds(found.min),
                    seconds(found.max),
                    found.count,
                )
            )
    print_table(
        ("", "median", "mean", "95 % of the mean", "min", "max", what), rows, right=(1, 2, 3, 4, 5, 6)
    )


def _notes(timed: Timed, walls: Sequence[Sequence[float]]) -> list[str]:
    notes = []
    shortest = min((min(values) for values in walls if values), default=0.0)
    if timed.shell_s and shortest and timed.shell_s > SHELL_SHARE * shortest:
        notes.append(
            f"starting the shell takes about {seconds(timed.shell_s)} and is part of every time; "
            "-N starts the program without it"
        )
    failed = sum(each.exit_code != 0 for runs in timed.executions for each in runs)
    if failed:
        notes.append(f"{failed} runs ended with an exit code other than 0")
    return notes
