"""Rollouts as JSON: what `summary.json`, `task_results/` and `proctor summarize --json` hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from proctor.analysis.estimate import AtK, Denominators, Score
from proctor.analysis.interval import Interval
from proctor.model.arms import arm_of, shown_options
from proctor.model.describe import describe
from proctor.model.place import attempt_folder
from proctor.model.plan import PlannedTrial
from proctor.model.record import SCHEMA_VERSION, Failure, judge_of, judge_score, unit_score
from proctor.runfolder.read import RunData, TrialResult
from proctor.verdicts.rollouts.judging import JudgedArm, judging
from proctor.verdicts.rollouts.performance import MeasuredArm, gain_fields, performance
from proctor.verdicts.rollouts.scores import ArmScore, Rollouts, described, middle, phases, rollouts
from proctor.verdicts.rollouts.table import LEDGER, USAGE, Cell, Row


def arms(data: RunData) -> list[dict[str, Any]]:
    """One object per agent, model and swept variables."""
    judged = {each.arm.arm: {"judge": _judged(each)} for each in judging(data)}
    measured = {each.arm.arm: {"performance": _measured(each)} for each in performance(data)}
    return [
        _arm(each, {**judged.get(each.arm, {}), **measured.get(each.arm, {})}) for each in rollouts(data).arms
    ]


def _arm(arm: ArmScore, more: dict[str, Any]) -> dict[str, Any]:
    return {
        "agent": arm.arm.agent,
        "agent_version": arm.arm.identity.version,
        "model": arm.arm.model,
        "agent_options": dict(arm.arm.options),
        "environment_variables": dict(arm.arm.variables),
        "name": arm.arm.name,
        "label": arm.arm.label,
        "tasks": len(arm.cells),
        "rollouts": arm.rollouts,
        "scored": arm.scored,
        "passed": arm.passed,
        "errors": arm.errors,
        "missing": arm.missing,
        "outcomes": {each.value: count for each, count in arm.outcomes.items()},
        "pass_rate": _denominators(arm.passes),
        "mean_reward": _denominators(arm.rewards),
        "pass_at_k": [_at_k(each) for each in arm.at_k],
        "pass_hat_k": [_at_k(each) for each in arm.hat_k],
        "flaky_tasks": arm.flaky,
        "duration_s": describe(arm.use.took),
        "phases_s": described(phases(arm.use)),
        "ledger": described({name: arm.use.ledger[name] for name in LEDGER if name in arm.use.ledger}),
        **({"ledger_unknown": arm.use.unknown} if arm.use.unknown else {}),
        "usage": arm.use.totals,
        **more,
        "by_task": [_cell(cell, arm) for cell in arm.cells],
    }


def _judged(each: JudgedArm) -> dict[str, Any]:
    return {
        "models": list(each.models),
        "prompts": list(each.prompts),
        "decides": each.decides,
        "judged": each.judged,
        "missing": each.missing,
        "reasons": dict(each.reasons),
        "votes": dict(each.votes),
        "unit_score": _score(each.unit),
        "judge_score": _score(each.judge),
        "agreement": _score(each.agreement),
        "agreement_with_tests": _score(each.with_tests),
        "usage": dict(each.usage),
    }


def _measured(each: MeasuredArm) -> dict[str, Any]:
    return {
        "rollouts": each.rollouts,
        "measured": each.measured,
        "inconclusive": each.inconclusive,
        "place": list(each.ranks),
        "reward": _score(each.reward),
        **gain_fields(each.gain),
    }


def _cell(cell: Cell, arm: ArmScore) -> dict[str, Any]:
    stability = arm.stability[cell.row]
    return {
        "task": cell.row.task,
        "label": cell.row.label,
        "rollouts": len(cell.outcomes),
        "scored": len(cell.rewards),
        "passed": cell.passed,
        "errors": cell.errors,
        "missing": cell.missing,
        "pass_rate": cell.passed / len(cell.rewards) if cell.rewards else None,
        "interval_95": _interval(stability.interval),
        "mean_reward": sum(cell.rewards) / len(cell.rewards) if cell.rewards else None,
        "stability": stability.stability.value,
        "disagreement": stability.disagreement,
        "duration_s": middle(cell.tally.took),
    }


def _denominators(found: Denominators) -> dict[str, Any]:
    return {
        "errors_excluded": _score(found.excluded),
        "errors_as_zero": _score(found.as_zero),
        "best_case": _score(found.best_case),
    }


def _score(score: Score | None) -> dict[str, Any] | None:
    if score is None:
        return None
    return {
        "value": score.value,
        "claim": score.claim.value,
        "interval_95": _interval(score.these_tasks),
        "interval_95_tasks_like_these": _interval(score.tasks_like_these),
        "tasks": score.tasks,
        "rollouts": score.rollouts,
        "notes": list(score.notes),
    }


def _at_k(each: AtK) -> dict[str, Any]:
    return {
        "k": each.k,
        "value": each.value,
        "interval_95": _interval(each.interval),
        "tasks": each.tasks,
        "short_tasks": each.short_tasks,
    }


def _interval(interval: Interval | None) -> list[float] | None:
    return [interval.low, interval.high] if interval else None


def overview(run: Rollouts) -> dict[str, Any]:
    """The score of every arm with the errors left out, as zero, and at best; of the run if it has one arm."""
    scores = {arm.arm.name: readings(arm.rewards) for arm in run.arms}
    return {"score": next(iter(scores.values())) if len(scores) == 1 else None, "scores": scores}


def readings(found: Denominators) -> dict[str, float | int | None]:
    """A score or a pass rate under the three readings of errors."""
    return {
        "scored": found.excluded.rollouts if found.excluded else 0,
        "errors": found.errors,
        "errors_excluded": found.excluded.value if found.excluded else None,
        "errors_as_zero": found.as_zero.value if found.as_zero else None,
        "best_case": found.best_case.value if found.best_case else None,
    }


def task_results(data: RunData) -> Iterator[tuple[Row, dict[str, Any]]]:
    """One document per task, one after the other: who did it, how often, and every rollout."""
    run = rollouts(data)
    for row in run.table.rows:
        cells = [(arm, cell) for arm in run.arms if (cell := run.table.cells.get((row, arm.arm)))]
        yield (
            row,
            {
                "schema_version": SCHEMA_VERSION,
                "run_id": data.info.id,
                "task": row.task,
                "task_dir": row.path,
                "task_digest": row.digest,
                "arms": [
                    {
                        "agent": arm.arm.agent,
                        "model": arm.arm.model,
                        "agent_options": dict(arm.arm.options),
                        "environment_variables": dict(arm.arm.variables),
                        **_cell(cell, arm),
                        "results": [trial_row(trial, data.info.id) for trial in cell.trials],
                    }
                    for arm, cell in cells
                ],
            },
        )


def trial_row(trial: TrialResult, run_id: str) -> dict[str, Any]:
    """One rollout: the fields that other tools read first, then the rest."""
    planned, record = trial.planned, trial.counted
    variables = planned.overrides.get("environment_variables")
    usage = record.usage if record else {}
    return {
        "task_dir": planned.path or "",
        "run_id": f"{run_id}-{planned.index}",
        "run_dir": attempt_folder(planned, record.number if record else 1),
        "model": planned.model,
        "agent": planned.agent,
        "agent_options": agent_options(planned),
        "status": trial.outcome.value if trial.outcome else "pending",
        "launch_rc": launch_rc(trial),
        "task": planned.subject,
        "rollout": planned.rollout,
        "index": planned.index,
        "key": planned.key,
        "environment_variables": dict(variables) if isinstance(variables, dict) else {},
        "blame": trial.outcome.blame.value if trial.outcome else None,
        "reward": record.reward if record else None,
        **({"suspect": True} if record and record.suspect else {}),
        **(
            {"unit_score": unit_score(record), "judge_score": judge_score(record)}
            if record and judge_of(record)
            else {}
        ),
        "attempts": len(trial.attempts),
        "started_at": record.started_at if record else None,
        "duration_s": record.took_s if record else None,
        **{name: usage.get(name) for name in USAGE},
        "failure": failure_fields(record.failure) if record and record.failure else None,
    }


def agent_options(planned: PlannedTrial) -> dict[str, str]:
    """The options of a trial's agent, without what may be secret."""
    return shown_options(arm_of(planned).options)


def failure_fields(failure: Failure) -> dict[str, str]:
    """A failure as plain data."""
    return {name: getattr(failure, name) for name in ("phase", "type", "message", "traceback")}


def launch_rc(trial: TrialResult) -> int | None:
    """As an exit code: 0 when the agent was judged; otherwise who kept it from being judged."""
    from proctor.errors import Exit
    from proctor.model.outcome import Blame

    if trial.outcome is None:
        return None
    return int(
        {
            Blame.AGENT: Exit.OK,
            Blame.TASK: Exit.WORSE,
            Blame.AUTHOR: Exit.USAGE,
            Blame.INFRASTRUCTURE: Exit.INFRASTRUCTURE,
            Blame.PROVIDER: Exit.INFRASTRUCTURE,
            Blame.PERSON: Exit.INTERRUPTED,
        }[trial.outcome.blame]
    )
