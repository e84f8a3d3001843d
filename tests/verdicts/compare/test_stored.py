from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from proctor.model.outcome import Outcome
from proctor.runfolder.read import RunData
from proctor.store.open import open_store
from proctor.verdicts.compare.results import from_run
from proctor.verdicts.compare.stored import from_store


@pytest.fixture
def stored(tmp_path):
    """Put a run into a store."""
    with open_store(str(tmp_path / "store.db")) as store:

        def put(data):
            attempts = [
                (record, record is trial.counted) for trial in data.trials for record in trial.attempts
            ]
            planned = [trial.planned for trial in data.trials]
            store.import_run(data.info, planned, attempts, warnings=data.warnings)
            return store

        yield put


@pytest.mark.parametrize("metrics", [(), ("duration_s",), ("reward", "duration_s"), ("rss_bytes", "absent")])
def test_a_stored_run_is_the_same_side_whether_streamed_or_held_in_memory(any_run, stored, metrics):
    store = stored(any_run)
    held = from_run(RunData.from_store(store, any_run.info.id), metrics)
    assert from_store(store, any_run.info.id, metrics) == held


def test_several_agents_enter_the_names_of_the_tasks(runs, stored):
    data = runs.rollouts()
    half = len(data.trials) // 2
    trials = tuple(
        structs.replace(trial, planned=structs.replace(trial.planned, agent="x" if at < half else "y"))
        for at, trial in enumerate(data.trials)
    )
    data = replace(data, trials=trials)
    store = stored(data)
    found = from_store(store, data.info.id, ("reward", "duration_s"))
    assert found == from_run(RunData.from_store(store, data.info.id), ("reward", "duration_s"))
    assert {task.name.rpartition(" × ")[2] for task in found.tasks} == {"x/m1", "y/m1"}


def test_money_and_memory_are_read_from_where_an_attempt_reports_them(runs, stored):
    trial = runs.planned(0, {}, subject="t", kind="task", agent="a")
    record = runs.attempt(
        trial, (), outcome=Outcome.PASSED, reward=1.0, usage={"cost_usd": 0.5}, ledger={"cpu_s": 2.0}
    )
    data = runs.of([(trial, [record])], name="money")
    found = from_store(stored(data), data.info.id, ("cost_usd", "cpu_s", "absent"))
    assert dict(found.points[0].samples) == {"cost_usd": (0.5,), "cpu_s": (2.0,), "absent": ()}


def test_the_content_of_a_task_is_known_from_the_store(task_run, stored):
    data = task_run({"t": [1.0, 0.0], "u": [1.0]}, contents={"t": "abc"})
    found = from_store(stored(data), data.info.id, ())
    assert {point.name: point.content for point in found.points} == {"t": "abc", "u": "u"}
