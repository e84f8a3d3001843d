"""The noise certificate of rollouts: what it says, and that its gate is the gate."""

from __future__ import annotations

import numpy as np
import pytest

from proctor.analysis.aa import Pair, Urns, halve, judge_pair
from proctor.analysis.estimate import TaskRewards
from proctor.verdicts.compare.results import ArmRewards, ResultSet
from proctor.verdicts.gate.evaluate import evaluate
from proctor.verdicts.gate.inputs import GateInput
from proctor.verdicts.gate.rules import read_rules

RULES = {
    None: read_rules(["score not worse than baseline by more than 3pp at 95%"]),
    False: read_rules(["score not worse than baseline by more than 3pp at 95% for tasks like these"]),
    True: read_rules(["score not worse than baseline by more than 3pp at 95% for these tasks"]),
}


def side(tasks: tuple[TaskRewards, ...]) -> GateInput:
    trials = sum(len(task.scored) + task.errors for task in tasks)
    arms = (ArmRewards(name="", tasks=tasks),)
    results = ResultSet(label="simulated", source="run", kind="task", arms=arms)
    return GateInput(results=results, trials=trials, broken=sum(task.errors for task in tasks))


def pairs(tasks: int, rollouts: int, errors: int, count: int):
    """Identical and unlike pairs, with and without errors."""
    generator = np.random.default_rng([tasks, rollouts, errors])
    for _ in range(count):
        chances = generator.beta(0.5, 0.5, tasks)
        whole = tuple(
            TaskRewards(
                name=f"task-{at}",
                scored=tuple((generator.random(2 * rollouts) < chance).astype(float).tolist()),
                errors=int(generator.integers(0, errors + 1)),
            )
            for at, chance in enumerate(chances)
        )
        yield halve(whole, generator)
        yield Urns(whole).draw(rollouts, generator, kept=float(generator.choice([0.3, 0.7, 1.0])))


@pytest.mark.parametrize("these_tasks", [None, False, True])
@pytest.mark.parametrize(("tasks", "rollouts", "errors"), [(4, 3, 0), (9, 4, 0), (12, 3, 2), (30, 5, 1)])
def test_a_pair_is_judged_exactly_as_the_gate_would(
    tasks: int, rollouts: int, errors: int, these_tasks: bool | None
):
    seen = set()
    for pair in pairs(tasks, rollouts, errors, 10):
        expected = evaluate(RULES[these_tasks], side(pair.after), side(pair.before)).results[0].verdict
        assert judge_pair(pair, 0.03, these_tasks=these_tasks).value == expected.value
        seen.add(expected.value)
    assert len(seen) > 1 or tasks < 6


def test_a_pair_with_nothing_on_one_side_is_judged_as_the_gate_would():
    empty = tuple(TaskRewards(name=f"t{at}", scored=(), errors=2) for at in range(6))
    full = tuple(TaskRewards(name=f"t{at}", scored=(1.0, 0.0)) for at in range(6))
    for pair in (Pair(full, empty), Pair(empty, full)):
        expected = evaluate(RULES[False], side(pair.after), side(pair.before)).results[0].verdict
        assert judge_pair(pair, 0.03).value == expected.value
