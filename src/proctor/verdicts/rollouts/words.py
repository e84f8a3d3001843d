"""Percentages and sentences for rollouts: the same in the terminal, in Markdown and on the page."""

from __future__ import annotations

from collections import Counter

from proctor.analysis.claim import Claim, widest_claim
from proctor.analysis.estimate import Score
from proctor.analysis.flaky import Stability
from proctor.analysis.interval import Interval
from proctor.model.outcome import Blame, Outcome
from proctor.quantity import MISSING, plural, some
from proctor.verdicts.rollouts.evidence import ORACLE
from proctor.verdicts.rollouts.scores import Rollouts


def meaning(outcome: Outcome | None) -> str:
    """The outcome in words."""
    return outcome.value.replace("_", " ") if outcome else "no result yet"


def rate(value: float | None) -> str:
    """A share of rollouts as a percentage; neither end is claimed unless it is exact."""
    if value is None:
        return MISSING
    if 0.995 <= value < 1:
        return "> 99 %"
    if 0 < value < 0.005:
        return "< 1 %"
    return f"{value * 100:.0f} %"


def span(interval: Interval | None) -> str:
    """An interval of shares."""
    return f"{interval.low * 100:.0f}–{interval.high * 100:.0f} %" if interval else MISSING


def claim_of(run: Rollouts) -> Claim:
    """What the intervals in sentences and short tables are about: the widest claim that all arms can make."""
    scores = [score for arm in run.arms if (score := arm.passes.excluded)]
    return widest_claim(min((score.tasks for score in scores), default=len(run.table.rows)))


def score_text(score: Score | None, claim: Claim) -> str:
    """A share and its interval for a claim, which the caller names beside it."""
    return f"{rate(score.value)} ({span(score.interval(claim))})" if score else MISSING


def headline(run: Rollouts) -> str:
    """One sentence: who passes how much of what, and what was left out."""
    tasks, arms, claim = len(run.table.rows), run.arms, claim_of(run)
    if len(arms) == 1:
        only = arms[0]
        score = only.passes.excluded
        if score is None:
            return f"{only.arm.label} has no scored rollout on {plural(tasks, 'task')}.{_left_out(run)}"
        text = (
            f"{only.arm.label} passes {rate(score.value)} on {plural(tasks, 'task')} "
            f"(95 % interval {span(score.interval(claim))}, for {claim}): "
            f"{only.passed} of {plural(only.scored, 'scored rollout')}."
        )
        return text + _left_out(run)
    ranked = sorted(
        (each for each in arms if each.passes.excluded),
        key=lambda each: -(each.passes.excluded.value if each.passes.excluded else 0),
    )
    if not ranked:
        return f"None of {len(arms)} agents has a scored rollout on {plural(tasks, 'task')}.{_left_out(run)}"
    shown = ranked if len(ranked) <= 4 else [ranked[0], ranked[1], ranked[-1]]
    parts = [f"{each.arm.label} {score_text(each.passes.excluded, claim)}" for each in shown]
    dots = ", …, " if len(ranked) > 4 else ", "
    listed = ", ".join(parts[:-1]) + dots + parts[-1] if len(parts) > 1 else parts[0]
    return f"Pass rates over {plural(tasks, 'task')} (95 % intervals for {claim}): {listed}.{_left_out(run)}"


def warnings(run: Rollouts, suspects: int = 0) -> list[str]:
    """What to know before quoting a score: losses, broken verifiers, flaky tasks, too few rollouts."""
    total = plural(sum(arm.rollouts for arm in run.arms), "rollout")
    outcomes = _outcomes(run)
    found = []
    for blames, said in _LOSSES:
        lost = Counter({meaning(each): count for each, count in outcomes.items() if each.blame in blames})
        if lost:
            ways = ", ".join(_several(count, name) for name, count in lost.most_common())
            found.append(f"{said}: {lost.total()} of {total} ({ways})")
    if suspects:
        found.append(
            f"suspect: {suspects} of {total} passed with changed system files and "
            "could not be confirmed without them"
        )
    cells = [(arm, cell) for arm in run.arms for cell in arm.cells]
    flaky = list(
        dict.fromkeys(c.row.label for a, c in cells if a.stability[c.row].stability is Stability.FLAKY)
    )
    if flaky:
        both = f"{plural(len(flaky), 'task')} both passed and failed by the same agent"
        found.append(f"flaky: {both}: {some(flaky, 5)}")
    if cells and all(len(cell.outcomes) == 1 for _, cell in cells):
        found.append("one rollout per task and agent: five would show which tasks pass only sometimes")
    return found + _unsolved(run)


def _unsolved(run: Rollouts) -> list[str]:
    """The oracle runs a task's own solution: where it fails, no agent's failure means much."""
    tasks = [
        cell.row.label
        for arm in run.arms
        if arm.arm.agent == ORACLE
        for cell in arm.cells
        if cell.passed < len(cell.rewards)
    ]
    if not tasks:
        return []
    said = (
        f"the task's own solution (oracle) does not pass {some(tasks, 5)}: the solution, the tests or what "
        "they fetch from the network is at fault, not an agent"
    )
    return [said]


_LOSSES: tuple[tuple[set[Blame], str], ...] = (
    ({Blame.INFRASTRUCTURE}, "lost to the infrastructure and not in the score"),
    ({Blame.PROVIDER}, "lost to the model's provider and not in the score"),
    ({Blame.TASK, Blame.AUTHOR}, "not judged, because the task needs repair or a setting"),
)


def _left_out(run: Rollouts) -> str:
    ways = Counter({meaning(each): count for each, count in _outcomes(run).items() if each.error})
    if not ways:
        return ""
    listed = ", ".join(_several(count, name) for name, count in ways.most_common())
    return f" Left out, because the agent did not cause it: {listed}."


def _outcomes(run: Rollouts) -> Counter[Outcome]:
    return sum((Counter(arm.outcomes) for arm in run.arms), Counter())


def _several(count: int, name: str) -> str:
    return plural(count, name) if name.endswith(("error", "timeout")) else f"{count} {name}"
