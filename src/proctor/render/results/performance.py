"""The performance of the programs that agents wrote: who is ahead, with intervals, and each measurement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proctor.model.document import Cell, Column, Section, Table, Text
from proctor.model.record import QUANTITIES
from proctor.quantity import MISSING, number, plural, show
from proctor.render.results.cells import reward_cell, share_cell
from proctor.runfolder.read import RunData
from proctor.verdicts.rollouts.performance import MeasuredArm, performance

_CAPTION = (
    "Mean reward: of all rollouts on tasks that measure performance; what is wrong, or no better than the "
    "reference, has none. Place: the best and the worst that the intervals of the rewards allow. Times as "
    "good: than the author's reference, a geometric mean over the programs that were right. Intervals are "
    "of 95 %, for these tasks."
)
_NUMBERS = ("place", "mean reward", "95 %", "times as good", "95 %", "measured", "inconclusive")


def section(data: RunData) -> Section:
    """The agents, the best first; nothing for a run that measures no programs."""
    arms = performance(data)
    if not arms:
        return Section()
    columns = (Column("agent", "prose"), *(Column(name, "number") for name in _NUMBERS))
    table = Table(columns=columns, rows=tuple(map(_row, arms)), caption=_CAPTION)
    open_ = sum(each.inconclusive for each in arms)
    said = (
        f"{plural(open_, 'measurement')} inconclusive, because the machine was not steady; not in the score."
    )
    notes = (Text(text=said, quiet=True),) if open_ else ()
    return Section(title="Performance", blocks=(table, *notes), name="performance")


def _row(each: MeasuredArm) -> tuple[Cell | str, ...]:
    first, last = each.ranks
    reward, gain = each.reward, each.gain
    return (
        Cell(text=each.arm.arm.label, strong=True),
        f"{first}" if first == last else f"{first}–{last}",
        reward_cell(reward.value if reward else None),
        share_cell(reward.these_tasks) if reward else MISSING,
        Cell(text=f"{gain.ratio:.2f}", value=gain.ratio) if gain else MISSING,
        f"{gain.low:.2f}–{gain.high:.2f}" if gain else MISSING,
        f"{each.measured} of {each.rollouts}",
        str(each.inconclusive),
    )


def of_attempt(found: Mapping[str, Any]) -> list[Section]:
    """One measurement, for the page of its trial."""
    if not found:
        return []
    metric = str(found.get("metric", ""))
    quantity = QUANTITIES.get(metric, metric)
    values = [show(quantity, number(found.get(side))) for side in ("reference", "program")]
    span, ratio = found.get("interval"), number(found.get("ratio"))
    blocks: list[Table | Text] = []
    if ratio is not None and isinstance(span, list | tuple) and len(span) == 2:
        names = (f"reference's {metric}", f"program's {metric}", "times as good", "95 %", "target", "rounds")
        row = (
            *values,
            f"{ratio:.3f}",
            f"{span[0]:.3f}–{span[1]:.3f}",
            f"{number(found.get('target')) or 0:g}",
            str(found.get("rounds", "")),
        )
        blocks.append(Table(columns=tuple(Column(name, "number") for name in names), rows=(row,)))
    reason = f": {found['reason']}" if found.get("reason") else ""
    blocks.append(Text(text=f"{found.get('verdict', '')}{reason}"[:2000]))
    return [Section(title="Performance", blocks=tuple(blocks))]
