"""What a judge is told of a piece of work: made from the attempt's files and its record, within bounds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proctor.agents.trajectory import cut
from proctor.model.task import Task
from proctor.trial.judge.prompt import Material

LOG = "logs/eval.log"
DIFF = "artifacts/diff.patch"
TRAJECTORY = "trajectory.json"
MOST_BYTES = 16 << 20
"""Of a file that is read for a judge; what it is shown is far less."""
_MOST_STEP = 20_000
_BY_TESTS = {"passed", "failed", "partial"}


def material(
    task: Task,
    *,
    outcome: str,
    reward: float | None,
    metrics: Mapping[str, Any],
    diff: bytes,
    log: bytes,
    steps: Sequence[Mapping[str, Any]],
) -> Material:
    """All that there is to see."""
    return Material(
        instruction=instruction_of(task),
        diff=diff.decode(errors="replace"),
        tests="\n".join(_tests(outcome, reward, metrics, log)),
        trajectory="\n".join(line for step in steps for line in _step(step)),
    )


def instruction_of(task: Task) -> str:
    """What the agent was asked; of a task with steps, step by step."""
    steps = [f"Step {each.name}:\n{each.instruction}" for each in task.steps]
    return "\n\n".join([*([task.instruction] if task.instruction else []), *steps])


def steps_of(trajectory: bytes) -> list[Mapping[str, Any]]:
    """The steps of a stored trajectory; none where it cannot be read."""
    try:
        found = json.loads(trajectory)["steps"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _tests(outcome: str, reward: float | None, metrics: Mapping[str, Any], log: bytes) -> Iterator[str]:
    if reward is None and outcome in _BY_TESTS:
        yield "there are no tests for this task"
        return
    yield f"outcome: {outcome.replace('_', ' ')}"
    yield "reward: none" if reward is None else f"reward: {reward:g} of 1"
    for title, values in (("reward", metrics.get("rewards")), ("step", metrics.get("steps"))):
        for name, value in values.items() if isinstance(values, Mapping) else ():
            yield f"{title} '{name}': {value}"
    for row in metrics.get("rubrics") or ():
        if row.get("unit_score") is not None:
            yield f"rubric '{row['id']}': its tests give {row['unit_score']:g} of 1"
    if log:
        yield "what the tests printed:"
        yield log.decode(errors="replace")


def _step(step: Mapping[str, Any]) -> Iterator[str]:
    """One step as lines of text."""
    yield f"[step {step.get('step_id', '?')}, {step.get('source', '?')}]"
    if message := _short(step.get("message")):
        yield message
    for call in step.get("tool_calls") or ():
        if isinstance(call, Mapping):
            arguments = json.dumps(call.get("arguments"), ensure_ascii=False)
            yield f"calls {call.get('function_name', '?')} {_short(arguments)}"
    observed = step.get("observation")
    for result in observed.get("results") or () if isinstance(observed, Mapping) else ():
        if isinstance(result, Mapping):
            yield f"result: {_short(result.get('content'))}"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    return cut(text, _MOST_STEP)
