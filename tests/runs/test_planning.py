"""What a plan says beside its trials, for who hands them out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.faults.chaos import make_task

from proctor.errors import UsageError
from proctor.runs.planning import plan_spec
from proctor.settings import Settings
from proctor.spec.load import from_mapping


def test_what_a_task_asks_of_a_machine_is_beside_the_plan(tmp_path: Path):
    task = make_task(tmp_path / "task", 0)
    table = "[environment]\n"
    (task / "task.toml").write_text(
        (task / "task.toml").read_text().replace(table, f"{table}cpus = 3\nmemory_mb = 64\n")
    )
    spec = from_mapping({"tasks": [{"path": str(task), "agent": "oracle", "rollouts": 2}]})
    plan = plan_spec(spec, Settings(home=tmp_path / "home"))
    digest = plan.trials[0].subject_digest
    assert plan.cpus == {digest: 3.0}
    assert plan.memory_bytes == {digest: 64 << 20}


def planned(folder: Path, *entries: dict) -> int:
    task = make_task(folder / "task", 0)
    (task / "overrides.json").write_text(json.dumps({"environment_variables": {"MODE": "fast"}}))
    spec = from_mapping({"tasks": [{"path": str(task), "agent": "oracle", **entry} for entry in entries]})
    return len(plan_spec(spec, Settings(home=folder / "home")).trials)


@pytest.mark.parametrize(
    "entries",
    [
        [{"sweep": {"MODE": ["fast", "slow"]}}],
        [{"sweep": {"MODE": ["slow"]}}],
        [{"environment_variables": {"MODE": "fast"}}, {"environment_variables": {"MODE": "slow"}}],
        [{}, {"environment_variables": {"MODE": "slow"}}],
    ],
)
def test_arms_that_a_task_would_give_the_same_value_are_refused(tmp_path: Path, entries: list):
    with pytest.raises(UsageError, match=r"overrides\.json forces it to be 'fast'.*apply_overrides: false"):
        planned(tmp_path, *entries)


@pytest.mark.parametrize(
    ("entries", "trials"),
    [
        ([{"sweep": {"MODE": ["fast", "slow"]}, "apply_overrides": False}], 2),
        ([{"sweep": {"LEVEL": ["easy", "hard"]}}], 2),
        ([{"environment_variables": {"MODE": "slow"}}], 1),
    ],
)
def test_a_task_may_force_what_no_arm_varies(tmp_path: Path, entries: list, trials: int):
    assert planned(tmp_path, *entries) == trials
