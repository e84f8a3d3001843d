"""Glyphs, percentages and sentences for rollouts: the same in the terminal, in Markdown and on the page."""

from __future__ import annotations

from collections import Counter

from proctor.analysis.estimate import Score
from proctor.analysis.flaky import Stability
from proctor.analysis.interval import Interval
from proctor.model.outcome import Outcome
from proctor.report.data import TrialResult
from proctor.report.quantity import MISSING, show, significant
from proctor.report.rollouts.scores import ArmScore, Rollouts
from proctor.report.rollouts.table import is_error

PENDING = "·"
GLYPHS = {
    Outcome.PASSED: "✓",
    Outcome.PARTIAL: "◐",
    Outcome.FAILED: "✗",
    Outcome.AGENT_TIMEOUT: "t",
    Outcome.AGENT_ERROR: "e",
    Outcome.BUDGET_EXHAUSTED: "b",
    Outcome.VERIFIER_ERROR: "V",
    Outcome.VERIFIER_TIMEOUT: "V",
    Outcome.REWARD_INVALID: "R",
    Outcome.SANDBOX_ERROR: "S",
    Outcome.IMAGE_ERROR: "I",
    Outcome.WORKER_LOST: "L",
    Outcome.STARVED: "M",
    Outcome.PROVIDER_ERROR: "P",
    Outcome.CANCELLED: "–",
    Outcome.SKIPPED: "–",
    Outcome.INVALID: "?",
}
"""One column each. Small letters: the agent's own end. Capitals: an error that was not the agent's."""

STABILITY = {
    Stability.ALWAYS_PASSES: "stable",
    Stability.ALWAYS_FAILS: "stable",
    Stability.FLAKY: "flaky",
    Stability.UNKNOWN: "unknown",
}


def glyph(outcome: Outcome | None) -> str:
    """One character for how a trial ended."""
    return GLYPHS[outcome] if outcome else PENDING


def meaning(outcome: Outcome | None) -> str:
    """The outcome in words."""
    return outcome.value.replace("_", " ") if outcome else "no result yet"


def outcomes_in_order(trials: list[TrialResult]) -> list[Outcome | None]:
    """The outcomes that occur, as a legend lists them."""
    found = {trial.outcome for trial in trials}
    return [*(outcome for outcome in Outcome if outcome in found), *([None] if None in found else [])]


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


def score_text(score: Score | None) -> str:
    """A share and the interval for these tasks."""
    return f"{rate(score.value)} ({span(score.these_tasks)})" if score else MISSING


def denominators_text(arm: ArmScore) -> str:
    """What the errors leave open: the pass rate with them as failures, and with them as passes."""
    zero, best = arm.passes.as_zero, arm.passes.best_case
    if zero is None or best is None:
        return MISSING
    return f"{zero.value * 100:.0f}–{best.value * 100:.0f} %" if arm.errors else rate(zero.value)


def reward_text(reward: float | None) -> str:
    """A reward with no more digits than it needs."""
    return MISSING if reward is None else significant(reward, 3) if 0 < reward < 1 else f"{reward:g}"


def use_text(name: str, value: float | None) -> str:
    """An amount of tokens, calls or money; what is counted has no decimals."""
    if value is None:
        return MISSING
    return show(name, value) if name.endswith("_usd") else f"{value:,.0f}".replace(",", "\u202f")


def plural(count: int, noun: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def headline(run: Rollouts) -> str:
    """One sentence: who passes how much of what, and what was left out."""
    tasks, arms = len(run.table.rows), run.arms
    if len(arms) == 1:
        only = arms[0]
        score = only.passes.excluded
        if score is None:
            return f"{only.arm.label} has no scored rollout on {plural(tasks, 'task')}.{_left_out(run)}"
        text = (
            f"{only.arm.label} passes {rate(score.value)} on {plural(tasks, 'task')} "
            f"(95 % interval {span(score.these_tasks)}): "
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
    parts = [f"{each.arm.label} {score_text(each.passes.excluded)}" for each in shown]
    dots = ", …, " if len(ranked) > 4 else ", "
    listed = ", ".join(parts[:-1]) + dots + parts[-1]
    return f"Pass rates over {plural(tasks, 'task')}: {listed}.{_left_out(run)}"


def _left_out(run: Rollouts) -> str:
    errors = [trial.outcome for arm in run.arms for trial in arm.trials if is_error(trial.outcome)]
    if not errors:
        return ""
    ways = Counter(meaning(outcome) for outcome in errors)
    listed = ", ".join(_several(count, name) for name, count in ways.most_common())
    return f" Left out, because it was not the agent's doing: {listed}."


def _several(count: int, name: str) -> str:
    return plural(count, name) if name.endswith(("error", "timeout")) else f"{count} {name}"


def error_range(arm: ArmScore) -> str:
    """What the errors could have meant: from all failed to all passed."""
    zero, best = arm.passes.as_zero, arm.passes.best_case
    if not arm.errors or zero is None or best is None:
        return ""
    return f"{rate(zero.value)} if every error is a failure, {rate(best.value)} if every one is a pass"
