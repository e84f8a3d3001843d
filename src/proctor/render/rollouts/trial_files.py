"""What a trial's folder says about its evaluation: `evaluation_results.json`, `scoring_results.md`, notes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from proctor.model.arms import arm_of, shown_options
from proctor.model.outcome import Outcome
from proctor.model.place import attempt_folder
from proctor.model.plan import PlannedTrial
from proctor.model.record import SCHEMA_VERSION, AttemptRecord
from proctor.quantity import MISSING, duration, number
from proctor.render.html.view import moment
from proctor.render.markdown import plain, table
from proctor.runfolder.files import encode, write_once
from proctor.runfolder.read import RunData
from proctor.verdicts.rollouts.suspects import changes_text
from proctor.verdicts.rollouts.words import meaning, reward_text

EVAL_LOG = "eval.log"
"""What the verifier printed; under `logs/` of each attempt."""


def evaluation(run_id: str, trial: PlannedTrial, record: AttemptRecord) -> dict[str, Any]:
    """The evaluation of one attempt, complete in itself."""
    rubrics = rubrics_of(record)
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": run_id,
        "key": trial.key,
        "task": trial.subject,
        "task_digest": trial.subject_digest,
        "agent": trial.agent,
        "model": trial.model,
        "agent_options": shown_options(arm_of(trial).options),
        "rollout": trial.rollout,
        "attempt": record.number,
        "outcome": record.outcome.value,
        "blame": record.outcome.blame.value,
        "scored": record.outcome.scored,
        "passed": record.outcome.scored and (record.reward or 0.0) >= 1,
        "reward": record.reward,
        "unit_score": weighted(rubrics, "unit_score") if rubrics else record.reward,
        "judge_score": weighted(rubrics, "judge_score"),
        "rewards": _numbers(record.metrics.get("rewards")),
        "steps": dict(record.metrics.get("steps") or {}),
        "rubrics": rubrics,
        "evaluated_at": record.ended_at,
        "verify_s": number(record.phases_s.get("verify")),
        "log": f"logs/{EVAL_LOG}",
        "files": [each.name for each in record.artifacts if each.name.startswith("verifier/")],
        "failure": asdict(record.failure) if record.failure else None,
    }


def rubrics_of(record: AttemptRecord) -> list[dict[str, Any]]:
    """The rubrics of a prepared task; none for other tasks."""
    found = record.metrics.get("rubrics")
    return [dict(each) for each in found if isinstance(each, dict)] if isinstance(found, list | tuple) else []


def weighted(rubrics: Sequence[Mapping[str, Any]], column: str) -> float | None:
    """The weighted mean over the rubrics that have this score. The untested leave the denominator."""
    known = [
        (weight, score)
        for each in rubrics
        if (score := number(each.get(column))) is not None and (weight := number(each.get("weight")))
    ]
    total = sum(weight for weight, _ in known)
    return sum(weight * score for weight, score in known) / total if total else None


def scoring(trial: PlannedTrial, record: AttemptRecord) -> str:
    """The same for people: unit score and judge score side by side."""
    rubrics = rubrics_of(record)
    unit = weighted(rubrics, "unit_score") if rubrics else record.reward
    judge = weighted(rubrics, "judge_score")
    parts = [
        f"# {plain(trial.label)}\n\n**{meaning(record.outcome)}**, reward {reward_text(record.reward)}.\n"
    ]
    if not record.outcome.scored:
        parts.append(f"Not in the score: caused by the {record.outcome.blame.value}, not by the agent.\n")
    if record.suspect:
        parts.append("**Suspect**: see `artifacts/notes.md`.\n")
    parts.append(
        table(["unit score", "judge score"], [[reward_text(unit), reward_text(judge)]], right=(0, 1))
    )
    if rubrics:
        parts.append(_rubric_table(rubrics))
    parts += _parts("Rewards", _numbers(record.metrics.get("rewards")))
    parts += _parts("Steps", dict(record.metrics.get("steps") or {}))
    if record.failure:
        said = f"{record.failure.type}: {record.failure.message}"
        parts.append(f"## Why\n\nIn {plain(record.failure.phase)}: {plain(said, 2000)}\n")
    ended = f"Evaluated {moment(record.ended_at)}; agent and verifier took {duration(record.took_s)}."
    parts.append(f"{ended} The verifier's output is in `logs/{EVAL_LOG}`.\n")
    return "\n".join(parts)


def _rubric_table(rubrics: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [
            plain(each.get("id", "")),
            plain(each.get("description", "") or MISSING),
            reward_text(number(each.get("weight"))),
            reward_text(number(each.get("unit_score"))),
            reward_text(number(each.get("judge_score"))),
            plain(each.get("status", "")),
        ]
        for each in rubrics
    ]
    untested = sum(each.get("status") == "untested" for each in rubrics)
    text = table(["rubric", "what", "weight", "unit", "judge", "status"], rows, right=(2, 3, 4))
    if untested:
        text += (
            f"\n{untested} of {len(rubrics)} rubrics are untested: shown here, and not in the denominator.\n"
        )
    return f"## Rubrics\n\n{text}"


def _parts(title: str, values: Mapping[str, Any]) -> list[str]:
    if len(values) < 2 and title == "Rewards":
        return []
    rows = [[plain(name), reward_text(number(value))] for name, value in values.items()]
    return [f"## {title}\n\n{table(['name', 'reward'], rows, right=(1,))}"] if rows else []


def _numbers(value: object) -> dict[str, float]:
    found = value.items() if isinstance(value, dict) else ()
    return {str(name): amount for name, each in found if (amount := number(each)) is not None}


def notes(trial: PlannedTrial, record: AttemptRecord) -> str:
    """What a reader of the result should know, and what the agent used."""
    used = ", ".join(f"{name} {value:g}" for name, value in record.usage.items() if number(value))
    lines = [f"# Notes on {plain(trial.label)}\n", *(f"- {plain(each, 2000)}" for each in record.notes)]
    lines += [f"- {plain(each, 4000)}" for each in changes_text(record)]
    lines += [f"- used: {plain(used)}"] if used else []
    if record.outcome is not Outcome.PASSED and record.failure:
        lines.append(f"- {plain(f'{record.failure.phase}: {record.failure.message}', 2000)}")
    return "\n".join(lines if len(lines) > 1 else [*lines, "No notes."]) + "\n"


def write(data: RunData, folder: Path) -> None:
    """These files for every attempt that counts; none that would be empty."""
    for trial in data.trials:
        record = trial.counted
        if record is None:
            continue
        place = f"{folder}/{attempt_folder(trial.planned, record.number)}"
        for name, text in files_of(data.info.id, trial.planned, record):
            if text and (name not in _EMPTY or not os.path.lexists(f"{place}/{name}")):
                write_once(f"{place}/{name}", text)


def files_of(run_id: str, trial: PlannedTrial, record: AttemptRecord) -> Iterator[tuple[str, str]]:
    """What the attempt's folder holds besides its artifacts: names inside it, and their text."""
    yield "evaluation_results.json", encode(evaluation(run_id, trial, record), lines=True) + "\n"
    yield "scoring_results.md", scoring(trial, record)
    yield "artifacts/notes.md", notes(trial, record)
    kept = {each.name for each in record.artifacts}
    yield from ((name, empty) for name, empty in _EMPTY.items() if name not in kept)


_EMPTY = {
    "artifacts/diff.patch": "",
    "artifacts/repo_info.json": '{"state": "not stored: the sandbox could not keep it"}\n',
    f"logs/{EVAL_LOG}": "",
}
