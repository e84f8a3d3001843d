"""Sides that never ran: suites of rewards and points of times, for everything that judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from proctor.analysis.estimate import TaskRewards
from proctor.verdicts.compare.results import ArmRewards, ResultPoint, ResultSet
from proctor.verdicts.gate.evaluate import evaluate
from proctor.verdicts.gate.inputs import GateInput
from proctor.verdicts.gate.rules import read_rules
from proctor.verdicts.gate.verdict import GateResult, RuleResult


class Sides:
    """What tests ask for sides."""

    @staticmethod
    def suite(
        rewards: Mapping[str, Sequence[float]],
        *,
        errors: Mapping[str, int] | None = None,
        samples: Mapping[str, Mapping[str, Sequence[float]]] | None = None,
        **more: Any,
    ) -> GateInput:
        """A run of agents; `errors` are rollouts that the infrastructure broke."""
        lost = dict(errors or {})
        tasks = tuple(
            TaskRewards(name=name, scored=tuple(each), errors=lost.get(name, 0))
            for name, each in rewards.items()
        )
        points = tuple(
            ResultPoint(
                name=name, task=name, samples={metric: tuple(values) for metric, values in each.items()}
            )
            for name, each in (samples or {}).items()
        )
        broken = sum(lost.values())
        count = sum(len(task.scored) for task in tasks) + broken
        return GateInput(
            results=ResultSet(
                label="agents",
                source="run",
                kind="task",
                arms=(ArmRewards(name="", tasks=tasks),),
                points=points,
            ),
            **{"trials": count, "broken": broken, **more},
        )

    @staticmethod
    def rolled(chance: float, *, tasks: int = 60, rollouts: int = 5, seed: int = 0, **more: Any) -> GateInput:
        """A suite whose tasks are all solved with one chance."""
        generator = np.random.default_rng(seed)
        drawn = (generator.random((tasks, rollouts)) < chance).astype(float)
        return Sides.suite({f"t{at}": row for at, row in enumerate(drawn.tolist())}, **more)

    @staticmethod
    def times(
        scale: float = 1.0,
        *,
        points: int = 3,
        count: int = 30,
        metric: str = "duration_s",
        seed: int = 0,
        facts: Mapping[str, Mapping[str, str]] | None = None,
        failed: Mapping[str, tuple[str, Any]] | None = None,
        **more: Any,
    ) -> GateInput:
        """A run of an experiment; `failed` names points that have no result."""
        generator = np.random.default_rng(seed)
        made = []
        for at in range(points):
            name = f"sort(n={at})"
            values = tuple((scale * np.exp(generator.normal(0, 0.01, count))).tolist())
            why, blame = (failed or {}).get(name, ("", None))
            samples = {} if why else {metric: values}
            made.append(ResultPoint(name=name, subject="sort", samples=samples, failed=why, blame=blame))
        results = ResultSet(
            label="sorting", source="run", points=tuple(made), facts=facts or {}, metrics=(metric,)
        )
        return GateInput(results=results, **{"trials": points, **more})


def judge(
    rules: str | Sequence[Any], run: GateInput, baseline: GateInput | None = None, **more: Any
) -> GateResult:
    listed = [rules] if isinstance(rules, str) else rules
    return evaluate(read_rules(listed), run, baseline, **more)


@pytest.fixture
def sides() -> type[Sides]:
    return Sides


@pytest.fixture
def gate():
    return judge


@pytest.fixture
def one():
    """The only rule's result."""

    def judged(rule: str, run: GateInput, baseline: GateInput | None = None, **more: Any) -> RuleResult:
        return judge(rule, run, baseline, **more).results[0]

    return judged
