"""A race as a document: the verdict, what it saved, how the evidence came about, and what it does not say."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from proctor.model.document import (
    Block,
    Cell,
    Chart,
    Column,
    Document,
    Entries,
    Entry,
    Facts,
    Section,
    Table,
    Text,
    Tone,
    filled,
    interval,
    number,
    outcome,
)
from proctor.model.run import RunInfo
from proctor.quantity import show, significant
from proctor.verdicts.compare.sentence import points
from proctor.verdicts.gate.verdict import GateVerdict
from proctor.verdicts.race.judge import RaceResult
from proctor.verdicts.race.words import effect, limits, saving, sentence, unused

_TONES: dict[GateVerdict, Tone] = {GateVerdict.PASS: "good", GateVerdict.REGRESSION: "bad"}
_STEPS = 4
MOST_TASKS = 200


def race_document(found: RaceResult, info: RunInfo, *, folder: Path | None = None) -> Document:
    """The whole race. `folder`: where the page is, when it is not in the run's folder."""
    design = found.design
    report = Path(info.folder) / "report.html"
    own = folder is None or folder.resolve() == report.parent
    return Document(
        kind="race",
        title=f"{design.baseline} against {design.candidate}",
        headline=sentence(found),
        verdict=found.verdict.value,
        tone=_TONES.get(found.verdict, "warn"),
        about=(
            ("run", Cell(text=info.id, code=True)),
            ("baseline", _baseline(found)),
            ("candidate", design.candidate),
            ("error", f"{100 * design.error:g} %"),
        ),
        warnings=tuple(_warnings(found)),
        sections=filled([_numbers(found), _evidence(found), _course(found), _tasks(found), _silent(found)]),
        folder=info.folder if own else str(folder),
        links=(Cell(text="report of the run", href="report.html"),) if own else (),
        footer="A pair is one rollout of each side on the same task. Pairs are looked at in planned order.",
    )


def _baseline(found: RaceResult) -> Cell:
    stored = found.design.stored_run
    return Cell(text=found.design.baseline, note=f"stored run {stored}" if stored else "")


def _warnings(found: RaceResult) -> list[str]:
    size = effect(found) if found.verdict is GateVerdict.REGRESSION else ""
    return [each for each in (f"Size: {size}." if size else "", unused(found)) if each]


def _numbers(found: RaceResult) -> Section:
    tally, (before, after) = found.latest.tally, found.rewards
    facts: list[tuple[str, Cell | str]] = [
        ("baseline", _side(before)),
        ("candidate", _side(after)),
        ("lost by the candidate", number(str(tally.losses), tally.losses)),
        ("won by the candidate", number(str(tally.wins), tally.wins)),
        ("both the same", number(str(tally.agreed), tally.agreed)),
        ("evidence", number(significant(found.latest.e_value), found.latest.e_value, strong=True)),
    ]
    if found.spending.saved:
        facts.append(("rollouts saved", number(str(found.spending.saved), found.spending.saved)))
    if found.spending.saved_usd:
        facts.append(
            (
                "cost saved, about",
                number(show("cost_usd", found.spending.saved_usd), found.spending.saved_usd),
            )
        )
    if found.interval and found.difference is not None:
        low, high = found.interval
        said = f"{points(low)} to {points(high)}"
        facts.append((f"difference, {100 * found.level:.4g} % for {found.claim}", interval(said, low, high)))
    return Section(blocks=(Text(text=saving(found)), Facts(pairs=tuple(facts), tiles=True)), name="numbers")


def _side(rewards: Sequence[float]) -> Cell:
    if not rewards:
        return Cell(text="–")
    mean = sum(rewards) / len(rewards)
    passed = sum(reward >= 1 for reward in rewards)
    return number(f"{100 * mean:.1f} %", mean, note=f"passed {passed} of {len(rewards)}")


def _evidence(found: RaceResult) -> Section:
    boundary, error = 1 / found.design.error, f"{100 * found.design.error:g} %"
    values = [each.e_value for each in found.looks]
    if not values:
        return Section()
    return Section(
        title="Evidence that the candidate is worse",
        blocks=(
            Chart(
                title="After each pair",
                draw=lambda: _draw(values, found, boundary),
                caption='Each pair that disagrees is a bet against "no worse on any task". If that were '
                f"true, the line would reach {boundary:g} in at most {error} of all "
                "races, however often one looks. There it stops. A line that stays low proves nothing.",
            ),
        ),
        name="evidence",
    )


def _draw(values: Sequence[float], found: RaceResult, boundary: float) -> partial[str]:
    from proctor.render.charts.evidence import evidence

    return partial(
        evidence,
        values=values,
        planned=found.planned - found.void,
        boundary=boundary,
        stopped=found.stopped_early and found.verdict is GateVerdict.REGRESSION,
    )


def _course(found: RaceResult) -> Section:
    looks = found.looks
    if not looks:
        return Section()
    chosen = sorted({max(1, round(len(looks) * step / _STEPS)) for step in range(1, _STEPS + 1)})
    rows = tuple(
        tuple(
            number(text, value)
            for text, value in (
                (str(at), at),
                (str(each.tally.losses), each.tally.losses),
                (str(each.tally.wins), each.tally.wins),
                (significant(each.e_value), each.e_value),
            )
        )
        for at, each in ((at, looks[at - 1]) for at in chosen)
    )
    titles = ("pairs", "lost", "won", "evidence")
    table = Table(columns=tuple(Column(title, "number") for title in titles), rows=rows)
    return Section(title="How it came about", blocks=(table,), name="course")


def _tasks(found: RaceResult) -> Section:
    """Where they disagreed, the largest balance first."""
    balance: dict[str, list[int]] = {}
    for each in found.judged:
        counts = balance.setdefault(each.pair.task, [0, 0, 0, 0])
        if each.baseline is None or each.candidate is None:
            counts[3] += 1
        else:
            counts[0 if each.candidate < each.baseline else 1 if each.candidate > each.baseline else 2] += 1
    ranked = sorted(balance.items(), key=lambda item: (item[1][1] - item[1][0], item[0]))
    rows: tuple[tuple[Cell | str, ...], ...] = tuple(
        (task, *(number(str(each), each) for each in counts)) for task, counts in ranked[:MOST_TASKS]
    )
    if not rows:
        return Section()
    columns = (
        Column("task", "prose"),
        *(Column(each, "number") for each in ("lost", "won", "same", "errors")),
    )
    table = Table(
        columns=columns, rows=rows, total=len(ranked), brief=5, folded=f"Every task, {len(ranked)} of them"
    )
    return Section(title="Tasks", blocks=(table,), name="tasks")


def _silent(found: RaceResult) -> Section:
    mark = outcome("not said", "warn")
    entries = tuple(Entry(title=title, mark=mark, text=text) for title, text in limits(found))
    blocks: tuple[Block, ...] = (Entries(entries=entries),)
    return Section(title="What it does not say", blocks=blocks, name="limits", aside=True)
