"""A run of rollouts in the terminal: the sentence, the matrix, a line per agent. Plain text, no rich."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase
from typing import TYPE_CHECKING

from proctor.cli.points_text import print_warnings
from proctor.cli.table import colour, line_width, print_table, printable, say, seconds
from proctor.cli.terminal import styled
from proctor.render.document.terminal import clean
from proctor.render.layout import shorten, width

if TYPE_CHECKING:
    from proctor.model.outcome import Outcome
    from proctor.runfolder.read import RunData
    from proctor.verdicts.rollouts.scores import ArmScore, Rollouts

MOST_TASKS = 60
LEAST_LABEL = 12
GREEN, RED, YELLOW, DIM = "32", "31", "33;1", "2"


def print_rollouts(data: RunData) -> None:
    """Everything a person wants to know when a run has ended."""
    from proctor.verdicts.rollouts.scores import rollouts
    from proctor.verdicts.run.story import headline

    run = rollouts(data)
    say(clean(headline(data)))
    _print_matrix(data, run)
    print()
    _print_arms(run)
    _print_notes(run)
    _print_images(data)
    print_warnings(data)
    _print_reasons(data)


def _print_matrix(data: RunData, run: Rollouts) -> None:
    from proctor.verdicts.rollouts.table import is_error
    from proctor.verdicts.rollouts.words import glyph, meaning, outcomes_in_order

    rows = run.table.rows[:MOST_TASKS]
    names = [printable(arm.arm.label) for arm in run.arms]
    labels = [printable(row.label) for row in rows]
    room = line_width() or 10_000
    left = max(map(width, labels))
    wide = [max(width(name), _longest(arm)) for name, arm in zip(names, run.arms, strict=True)]
    if left + sum(each + 2 for each in wide) > room:
        for letter, name in zip(_letters(len(names)), names, strict=True):
            say(f"{letter} = {name}", indent="    ")
        names = _letters(len(names))
        wide = [max(len(name), _longest(arm)) for name, arm in zip(names, run.arms, strict=True)]
    left = min(left, max(LEAST_LABEL, room - sum(each + 2 for each in wide)))
    for part in _side_by_side(wide, room - left):
        print("  ".join([" " * left, *(names[at].ljust(wide[at]) for at in part)]).rstrip())
        for row, label in zip(rows, labels, strict=True):
            shown = shorten(label, left)
            cells = [shown + " " * (left - width(shown))]
            for at in part:
                cell = run.table.cells.get((row, run.arms[at].arm))
                outcomes = [trial.outcome for trial in cell.trials] if cell else []
                cells.append(_signs(outcomes, wide[at], room - left - 2))
            print("  ".join(cells).rstrip())
    if len(run.table.rows) > MOST_TASKS:
        print(f"… and {len(run.table.rows) - MOST_TASKS} more tasks; summary.md lists all of them")
    found = outcomes_in_order(list(data.trials))
    legend = (f"{glyph(each)} {meaning(each)}{' (not scored)' if is_error(each) else ''}" for each in found)
    say("   ".join(legend))


def _side_by_side(wide: Sequence[int], room: int) -> list[list[int]]:
    """Which arms fit beside each other; the others come below."""
    parts: list[list[int]] = [[]]
    used = 0
    for at, each in enumerate(wide):
        if parts[-1] and used + each + 2 > room:
            parts.append([])
            used = 0
        parts[-1].append(at)
        used += each + 2
    return parts


def _signs(outcomes: Sequence[Outcome | None], wide: int, room: int) -> str:
    """A sign per rollout; of more than fit the first, and how many there are besides."""
    if len(outcomes) <= room:
        return "".join(map(coloured, outcomes)) + " " * (wide - len(outcomes))
    more = f" +{len(outcomes) - room + 6}"
    return "".join(map(coloured, outcomes[: room - 6])) + more


def _longest(arm: ArmScore) -> int:
    return max(len(cell.trials) for cell in arm.cells)


def _letters(count: int) -> list[str]:
    return [ascii_uppercase[at] if at < 26 else f"A{at}" for at in range(count)]


def coloured(outcome: Outcome | None) -> str:
    """A sign in its colour, where colours are wanted."""
    from proctor.verdicts.rollouts.words import glyph

    sign = glyph(outcome)
    return styled(sign, tone(outcome)) if colour() else sign


def tone(outcome: Outcome | None) -> str:
    """The colour of an outcome, as a terminal's number."""
    if outcome is None:
        return DIM
    if not outcome.scored:
        return YELLOW
    return GREEN if outcome.value in {"passed", "partial"} else RED


def _print_arms(run: Rollouts) -> None:
    from proctor.verdicts.rollouts import scores
    from proctor.verdicts.rollouts.words import claim_of, denominators_text, rate, reward_text, span

    k = run.shared_k
    partial = any(arm.partial for arm in run.arms)
    errors = any(arm.errors for arm in run.arms)
    claim = claim_of(run)
    headers = ["agent", "pass rate", f"95 %, {claim}"]
    headers += ["errors as zero – best case"] if errors else []
    headers += [f"pass@{k}", f"pass^{k}"] if k > 1 else []
    headers += ["mean reward"] if partial else []
    headers += ["flaky tasks", *(["errors"] if errors else []), "median time"]
    rows: list[Sequence[object]] = []
    for arm in run.arms:
        score = arm.passes.excluded
        cells = [
            printable(arm.arm.label),
            rate(score.value if score else None),
            span(score.interval(claim) if score else None),
        ]
        cells += [denominators_text(arm)] if errors else []
        cells += [rate(each) for each in arm.at(k)] if k > 1 else []
        cells += (
            [reward_text(arm.rewards.excluded.value if arm.rewards.excluded else None)] if partial else []
        )
        middle = scores.durations(arm.trials).get("p50")
        cells += [f"{arm.flaky} of {len(arm.cells)}", *([str(arm.errors)] if errors else [])]
        rows.append([*cells, seconds(middle)])
    print_table(headers, rows, right=range(1, len(headers)))


def _print_notes(run: Rollouts) -> None:
    from proctor.verdicts.rollouts.words import plural

    for arm in run.arms:
        if arm.missing:
            print(f"{printable(arm.arm.label)}: {plural(arm.missing, 'rollout')} without a result")


def _print_images(data: RunData) -> None:
    from proctor.verdicts.rollouts.images import images_of

    # The host's own system is told by a warning of its own.
    known = (
        f"{each.title} ({each.digest[:19]})" for each in images_of(data) if each.digest and not each.host
    )
    found = list(dict.fromkeys(known))
    if found:
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        say(printable(f"images: {', '.join(found[:3])}{more}"), indent="  ")


def _print_reasons(data: RunData) -> None:
    from proctor.verdicts.rollouts.reasons import reasons, worth_reading

    for each in reasons(data):
        say(f"! {printable(each)}", indent="  ")
    if trial := worth_reading(data):
        say(printable(f"to read what {trial.planned.label} printed:"), indent="  ")
        print(f"  proctor logs {data.info.id} {trial.planned.index}")
