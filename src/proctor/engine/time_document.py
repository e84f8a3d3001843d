"""Timed commands or statements as a document: the verdicts in sentences, then the numbers they rest on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from proctor.analysis.lockstep import UNSETTLED
from proctor.engine.ab import PointResult
from proctor.engine.ab_document import TONES, forest_of
from proctor.engine.ab_words import change, counts, interval, sentence
from proctor.engine.time_commands import Timed
from proctor.engine.time_file import describe
from proctor.engine.time_statements import TimedStatements
from proctor.model.document import (
    Cell,
    Chart,
    Column,
    Document,
    Entries,
    Entry,
    Section,
    Table,
    Text,
    Tone,
    filled,
    number,
    outcome,
)
from proctor.model.document import interval as ends
from proctor.quantity import MISSING, duration

SHELL_SHARE = 0.05
"""From here on a reader should know how much of a time is the shell's own."""
MOST_ROWS = 24
METRIC = "duration_s"


def commands(timed: Timed) -> Document:
    """Commands, each from start to end."""
    walls = [[each.wall_ns / 1e9 for each in runs] for runs in timed.executions]
    cpus = [[each.cpu_ns / 1e9 for each in runs] for runs in timed.executions]
    names = [command.name for command in timed.study.commands]
    return _document(names, timed.results, walls, cpus, "runs", _notes(timed, walls))


def statements(timed: TimedStatements) -> Document:
    """Statements, a value per process."""
    results = [comparison.results[0] for comparison in timed.comparisons]
    note = f"times are of one execution; {timed.number:,} were timed together"
    return _document(timed.asked.names, results, timed.wall_s, timed.cpu_s, "processes", [note])


def _document(
    names: Sequence[str],
    results: Sequence[PointResult],
    walls: Sequence[Sequence[float]],
    cpus: Sequence[Sequence[float]],
    what: str,
    notes: Sequence[str],
) -> Document:
    worst = min((result.verdict for result in results), key=list(TONES).index, default=None)
    tone: Tone = ""
    if worst:
        unsettled = [result.verdict for result in results if TONES[result.verdict] == "warn"]
        tone = "warn" if unsettled and TONES[worst] != "bad" else TONES[worst]
    numbers = Section(
        title="" if len(results) < 2 else "Times",
        blocks=(_numbers(walls, cpus, what), *(Text(text=f"Note: {note}.", quiet=True) for note in notes)),
        name="times",
    )
    return Document(
        kind="time",
        title=" against ".join(names[:2]) if len(names) < 3 else f"{names[0]} and {len(names) - 1} others",
        headline=_headline(names, results, walls),
        verdict=worst.value if worst and len(results) == 1 else "",
        tone=tone,
        about=tuple((letter(place), Cell(text=name, code=True)) for place, name in enumerate(names)),
        sections=filled([_verdicts(names, results), numbers, _pictures(names, results, walls)]),
        footer="Written by 'proctor time'.",
    )


def letter(place: int) -> str:
    """A, B, C …; from the 27th on a number."""
    return chr(ord("A") + place) if place < 26 else str(place + 1)


def _headline(names: Sequence[str], results: Sequence[PointResult], walls: Sequence[Sequence[float]]) -> str:
    if len(results) == 1:
        return _sentence(results[0], "B")
    if results:
        said = counts([result.verdict for result in results])
        return f"{len(results)} compared with A: {said}"
    if not walls[0]:
        return f"{names[0]}: no run was completed"
    found = describe(walls[0])
    span = "" if found.low is None else f" ({duration(found.low)} to {duration(found.high)})"
    return f"{names[0]} takes {duration(found.mean)} on average{span}, {duration(found.median)} in the median"


def _sentence(result: PointResult, name: str) -> str:
    finding, text = result.finding, sentence(result, name)
    if result.verdict in UNSETTLED:
        text += f"; a change of {finding.detectable:.1%} would be detected"
        if finding.pairs_needed:
            text += f"; --max-pairs {finding.pairs_needed} would probably settle it"
    return f"{text}; {finding.reason}" if finding.reason not in {"", text} else text


def _verdicts(names: Sequence[str], results: Sequence[PointResult]) -> Section:
    """Each against the first, with both clocks and their own verdicts."""
    entries = [
        Entry(
            title=f"{letter(place)} {name}",
            mark=outcome(result.verdict.value, TONES[result.verdict]),
            text=_sentence(result, letter(place)) if len(results) > 1 else "",
            notes=tuple(_clocks(result)),
        )
        for place, (name, result) in enumerate(zip(names[1:], results, strict=True), 1)
    ]
    blocks = (Entries(entries=tuple(entries)),) if entries else ()
    return Section(title="Compared with A" if len(entries) > 1 else "", blocks=blocks, name="verdicts")


def _clocks(result: PointResult) -> Iterator[str]:
    for each in result.finding.clocks:
        what = "CPU time" if each.clock == "cpu" else "elapsed time"
        verdict = each.verdict.value if each.verdict else "inconclusive"
        yield f"{what} {change(each.change)} ({interval(each)}): {verdict}"


def _numbers(walls: Sequence[Sequence[float]], cpus: Sequence[Sequence[float]], what: str) -> Table:
    rows: list[tuple[Cell | str, ...]] = []
    for place, clocks in enumerate(zip(walls, cpus, strict=True)):
        for title, values in zip(("wall", "CPU"), clocks, strict=True):
            if not values:
                continue
            found = describe(values)
            span = MISSING if found.low is None else f"{duration(found.low)} … {duration(found.high)}"
            rows.append(
                (
                    f"{letter(place)} {title}",
                    number(duration(found.median), found.median, strong=True),
                    number(duration(found.mean), found.mean),
                    ends(span, found.low, found.high),
                    number(duration(found.min), found.min),
                    number(duration(found.max), found.max),
                    number(str(found.count), found.count),
                )
            )
    titles = ("median", "mean", "95 % of the mean", "min", "max", what)
    columns = (Column("", "whole"), *(Column(title, "number") for title in titles))
    return Table(columns=columns, rows=tuple(rows))


def _pictures(
    names: Sequence[str], results: Sequence[PointResult], walls: Sequence[Sequence[float]]
) -> Section:
    blocks = [forest_of(results)] if results else []
    if any(len(values) > 1 for values in walls):
        caption = (
            "Elapsed time of every run. Box: the middle half of the values; whiskers: p5 to p95; thick line: "
            "median; dots: single values."
        )
        blocks.append(Chart(title="Every time", draw=lambda: _distributions(names, walls), caption=caption))
    return Section(title="Pictures", blocks=tuple(blocks), name="pictures")


def _distributions(names: Sequence[str], walls: Sequence[Sequence[float]]) -> partial[str]:
    from proctor.render.charts import distribution

    samples = [
        distribution.Sample(label=f"{letter(place)} {name}"[:40], values=values)
        for place, (name, values) in enumerate(zip(names, walls, strict=True))
        if len(values) > 1
    ]
    if len(samples) > 1:
        return partial(distribution.rows, samples=samples[:MOST_ROWS], metric=METRIC)
    return partial(distribution.histogram, sample=samples[0], metric=METRIC)


def _notes(timed: Timed, walls: Sequence[Sequence[float]]) -> list[str]:
    notes = []
    shortest = min((min(values) for values in walls if values), default=0.0)
    if timed.shell_s and shortest and timed.shell_s > SHELL_SHARE * shortest:
        notes.append(
            f"starting the shell takes about {duration(timed.shell_s)} and is part of every time; "
            "-N starts the program without it"
        )
    failed = sum(each.exit_code != 0 for runs in timed.executions for each in runs)
    if failed:
        notes.append(f"{failed} runs ended with an exit code other than 0")
    return notes
