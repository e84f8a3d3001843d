"""The judge of a run beside its tests: scores with intervals, and how far votes and tests agree."""

from __future__ import annotations

from proctor.analysis.estimate import Score
from proctor.model.document import Cell, Column, Section, Table, Text
from proctor.model.record import UNKNOWN_COST
from proctor.quantity import MISSING, plural
from proctor.render.results.cells import amount_cell, rate_cell, share_cell
from proctor.runfolder.read import RunData
from proctor.verdicts.rollouts.judging import JudgedArm, judging

_CAPTION = (
    "Unit score: what the tests say of the rollouts that the judge scored. Votes agree: the share of pairs "
    "of votes that say the same, met or not, about a rubric. Judge and tests: the share of rubrics that both "
    "score and of which they say the same. Intervals are of 95 %."
)


def section(data: RunData) -> Section:
    """What the judge says; nothing for a run without one."""
    arms = judging(data)
    if not arms:
        return Section()
    numbers = (
        *("unit score", "95 %", "judge score", "95 %", "votes agree", "95 %", "judge and tests", "95 %"),
        *("judged", "judge's cost"),
    )
    columns = (Column("agent", "prose"), *(Column(name, "number") for name in numbers))
    table = Table(columns=columns, rows=tuple(map(_row, arms)), caption=_CAPTION)
    said = tuple(Text(text=each, quiet=True) for each in _said(arms))
    return Section(title="Judge", blocks=(table, *said), name="judge")


def _row(each: JudgedArm) -> tuple[Cell | str, ...]:
    shown = (each.unit, each.judge, each.agreement, each.with_tests)
    scores = [cell for found in shown for cell in _share(found)]
    asked = each.judged + each.missing
    return (Cell(text=each.arm.arm.label, strong=True), *scores, f"{each.judged} of {asked}", _cost(each))


def _share(found: Score | None) -> tuple[Cell | str, Cell | str]:
    return (rate_cell(found.value), share_cell(found.interval())) if found else (MISSING, MISSING)


def _cost(each: JudgedArm) -> Cell | str:
    if each.usage.get(UNKNOWN_COST):
        return "unknown"
    return amount_cell("cost_usd", each.usage["cost_usd"]) if each.usage.get("cost_usd") else MISSING


def _said(arms: tuple[JudgedArm, ...]) -> list[str]:
    models = ", ".join(dict.fromkeys(model for each in arms for model in each.models))
    prompts = ", ".join(dict.fromkeys(each for arm in arms for each in arm.prompts))
    decides = any(each.decides for each in arms)
    said = [
        f"Judge: {models}, prompt {prompts}. "
        + ("Its score is the reward." if decides else "The reward is the tests', whatever the judge says.")
    ]
    for each in arms:
        name, votes = each.arm.arm.label, each.votes
        if votes["void"] or votes["lost"]:
            void, lost = f"{votes['void']} could not be read", f"{votes['lost']} without an answer"
            said.append(f"{name}: {plural(votes['asked'], 'vote')}, {void}, {lost}.")
        said += [
            f"{name}: {plural(count, 'rollout')} without a score of the judge: {why[:300]}"
            for why, count in list(each.reasons.items())[:3]
        ]
    return said
