"""What a plan says beside its trials, for who hands them out."""

from __future__ import annotations

from pathlib import Path

from tests.faults.chaos import make_task

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
