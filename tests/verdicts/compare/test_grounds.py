"""What two runs ran on is compared task by task, and a reader is warned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msgspec import structs

from proctor.model.plan import Plan
from proctor.store.open import open_store
from proctor.verdicts.compare.grounds import ground_differences, ground_of
from proctor.verdicts.compare.judge import compare
from proctor.verdicts.compare.results import from_run
from proctor.verdicts.compare.stored import from_store

IMAGE = {"name": "ubuntu:24.04", "digest": "sha256:aaaaaaaaaaaaaaaa", "host": False, "root": "r1"}
LIMITS = {"network": "none", "cpus": 1.0, "memory_bytes": 1 << 30}


def ran_on(data: Any, image: dict[str, Any], limits: dict[str, Any]) -> Any:
    trials = []
    for trial in data.trials:
        record = structs.replace(trial.counted, image=image, ledger={"limits": limits})
        trials.append(structs.replace(trial, attempts=(record,), counted=record))
    return replace(data, trials=tuple(trials))


def warned(make_task_run, image: dict[str, Any], limits: dict[str, Any]) -> list[str]:
    tasks = {name: [1.0, 0.0] for name in ("a", "b", "c", "d")}
    one = ran_on(make_task_run(tasks), IMAGE, LIMITS)
    two = ran_on(make_task_run(tasks, run_id="run-b"), image, limits)
    found = compare(from_run(one, ("reward",)), from_run(two, ("reward",)))
    return [each for each in found.warnings if " ran " in each]


def test_the_same_ground_is_not_mentioned(task_run):
    assert warned(task_run, dict(IMAGE), dict(LIMITS)) == []


def test_another_digest_behind_the_same_name_is_told(task_run):
    (said,) = warned(task_run, {**IMAGE, "digest": "sha256:bbbbbbbbbbbbbbbb", "root": "r2"}, LIMITS)
    assert said.startswith(
        "4 tasks ran on different images: a (ubuntu:24.04 aaaaaaaaaaaa → ubuntu:24.04 bbbb"
    )
    assert said.endswith(" and 1 more")


def test_without_digests_the_roots_decide(task_run):
    bare = {**IMAGE, "digest": ""}
    assert warned(task_run, bare, LIMITS) == []
    (said,) = warned(task_run, {**bare, "root": "r2"}, LIMITS)
    assert "different images" in said


def test_the_hosts_own_system_on_one_side_is_told(task_run):
    (said,) = warned(task_run, {"name": "", "digest": "", "host": True, "root": ""}, LIMITS)
    assert "on this machine's own system on one side" in said


def test_networks_and_limits_are_told_apart(task_run):
    network, limits = warned(
        task_run,
        IMAGE,
        {"network": "allowlist", "allowed_hosts": ["h"], "cpus": 2.0, "memory_bytes": 1 << 30},
    )
    assert "4 tasks ran with different networks: a (none → allowlist h)" in network
    assert "cpus 1.0, memory_bytes 1.00 GiB → cpus 2.0" in limits


def test_records_of_earlier_versions_say_nothing(task_run):
    record = task_run({"a": [1.0]}).trials[0].counted
    assert ground_of(record) is None
    assert ground_differences({}, {}) == []


def test_a_stored_run_tells_the_same(task_run, tmp_path):
    data = ran_on(task_run({"a": [1.0, 0.0]}), IMAGE, LIMITS)
    plan = Plan(trials=tuple(trial.planned for trial in data.trials))
    with open_store(str(tmp_path / "s.db")) as store:
        store.import_run(data.info, plan.trials, [(trial.counted, True) for trial in data.trials])
        assert from_store(store, data.info.id, ("reward",)).grounds == from_run(data, ("reward",)).grounds
