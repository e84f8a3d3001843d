"""The same results give one answer, whether they are stored, in a folder or in `result.json` files."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from msgspec import structs

from proctor.api import compare as api_compare
from proctor.model.outcome import Outcome
from proctor.model.plan import Plan
from proctor.render.reporters import write_reports
from proctor.runfolder.read import RunData
from proctor.runfolder.write import RunFolder
from proctor.settings import load_settings
from proctor.store.open import StorePool, open_store
from proctor.verdicts.compare.open import compare_refs, open_side
from proctor.verdicts.compare.run_result import run_result

NOISE = {"cpu_over_wall": 0.4, "cpu_pressure": 0.9}
LIMITS = {"cpus": 1, "network": "none"}


def with_ledger(data: RunData, ledger, **more) -> RunData:
    trials = []
    for trial in data.trials:
        record = structs.replace(trial.counted, ledger=ledger, **more) if trial.counted else None
        trials.append(structs.replace(trial, attempts=(record,) if record else (), counted=record))
    return replace(data, trials=tuple(trials))


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Keep a run in the store, in a folder and in its result files; the ways to name it."""
    monkeypatch.setenv("PROCTOR_STORE", str(tmp_path / "store.db"))

    def keep(data: RunData):
        with open_store(load_settings().store_url) as store:
            attempts = [(each.counted, True) for each in data.trials if each.counted]
            store.import_run(data.info, [each.planned for each in data.trials], attempts, warnings=())
            whole = RunData.from_store(store, data.info.id)
        folder = RunFolder(tmp_path / data.info.id)
        folder.begin(whole.info, Plan(trials=tuple(trial.planned for trial in whole.trials)))
        folder.finish(whole, write_reports)
        files = sorted((tmp_path / data.info.id / "trials").rglob("result.json"))
        return data.info.id, str(tmp_path / data.info.id), [str(each) for each in files]

    return keep


def stores() -> StorePool:
    return StorePool(load_settings().store_url, create=False)


def answer(a: str, b: str, **more):
    found, _, _ = compare_refs((a, b), stores(), **more)
    return found.to_dict()


def both_ways(places, before: RunData, after: RunData, **more):
    """The answers for stored runs, folders, a mixture and result files."""
    (id_a, folder_a, files_a), (id_b, folder_b, files_b) = places(before), places(after)
    found = [answer(id_a, id_b, **more), answer(folder_a, folder_b, **more), answer(id_a, folder_b, **more)]
    if len(files_a) == len(files_b) == 1:
        found += [answer(files_a[0], files_b[0], **more), answer(files_a[0], id_b, **more)]
    return found


def test_one_point_that_waited_for_a_cpu_gives_one_answer_with_its_warnings(places, run):
    a = with_ledger(run([({"n": 1}, [1.0, 1.1, 0.9])], run_id="run-a"), {"noise": NOISE})
    b = with_ledger(run([({"n": 1}, [1.2, 1.1, 1.3])], run_id="run-b", parallel=4), {"noise": NOISE})
    answers = both_ways(places, a, b)
    assert all(each == answers[0] for each in answers)
    assert any("waited for a CPU up to 54%" in each for each in answers[0]["warnings"])
    assert any(each.startswith("spec differs: parallel 1 → 4") for each in answers[0]["warnings"])
    api = api_compare(a.info.id, b.info.id, settings=load_settings())
    assert api.to_dict() == answers[0]


@pytest.mark.parametrize("metrics", [("ops_per_s",), ("bytes",), ("duration_s", "bytes"), ("cpu_s",)])
def test_every_metric_gives_one_answer_wherever_an_attempt_reports_it(places, run, metrics):
    a = with_ledger(run([({"n": 1}, [1.0, 1.1])], run_id="run-a"), {"cpu_s": 2.0})
    b = with_ledger(run([({"n": 1}, [1.2, 1.4])], run_id="run-b"), {"cpu_s": 3.0})
    answers = both_ways(places, a, b, metrics=metrics)
    assert all(each == answers[0] for each in answers)


@pytest.mark.parametrize("ended", [Outcome.FAILED, Outcome.WORKER_LOST, Outcome.SANDBOX_ERROR])
def test_whoever_failed_has_the_same_blame_in_a_file(places, run, ended):
    answers = both_ways(
        places, run([({"n": 1}, [1.0, 1.1])], run_id="run-a"), run([({"n": 1}, ended)], run_id="run-b")
    )
    assert all(each == answers[0] for each in answers)
    assert (answers[0]["verdict"] == "worse") == (ended is Outcome.FAILED)


def test_a_sweep_gives_one_answer_and_each_of_its_points_the_same_interval(places, run):
    points = [({"n": n}, [n * 1.0, n * 1.1, n * 0.9]) for n in (1, 2, 3)]
    slower = [({"n": n}, [n * 2.0, n * 2.1, n * 1.9]) for n in (1, 2, 3)]
    a = with_ledger(run(points, run_id="run-a"), {"noise": NOISE})
    b = with_ledger(run(slower, run_id="run-b"), {"noise": NOISE})
    (id_a, folder_a, files_a), (id_b, folder_b, files_b) = places(a), places(b)
    whole = answer(id_a, id_b)
    assert answer(folder_a, folder_b) == answer(folder_a, id_b) == whole
    for at, (one, two) in enumerate(zip(files_a, files_b, strict=True)):
        (point,) = answer(one, two)["metrics"][0]["points"]
        stored = whole["metrics"][0]["points"][at]
        for field in ("name", "ratio", "interval", "p_value", "error", "note"):
            assert point[field] == stored[field]


@pytest.mark.parametrize("metrics", [(), ("reward", "cost_usd"), ("duration_s",)])
def test_a_rollout_gives_one_answer_with_its_image_and_limits(places, task_run, metrics):
    image = {"name": "i", "host": False}
    a = with_ledger(task_run({"x": [1.0]}, run_id="run-a"), {"limits": LIMITS}, image=image)
    b = with_ledger(task_run({"x": [0.0]}, run_id="run-b"), {"limits": {"cpus": 2}}, image=image)
    answers = both_ways(places, a, b, metrics=metrics)
    assert all(each == answers[0] for each in answers)
    assert any("with different limits" in each for each in answers[0]["warnings"])


def test_rollouts_of_several_tasks_give_one_answer(places, task_run):
    several = [task_run({"x": [1.0, 0.0], "y": [1.0, 1.0]}, run_id=name) for name in ("run-c", "run-d")]
    answers = both_ways(places, *several)
    assert all(each == answers[0] for each in answers)
    assert answers[0]["score"]["claim"] == "these tasks"


def test_noise_of_earlier_runs_is_used_for_files_too(places, run):
    for at in range(5):
        places(run([({"n": 1}, [1.0 + at / 50, 1.01 + at / 50])], run_id=f"old-{at}"))
    answers = both_ways(
        places, run([({"n": 1}, [1.0, 1.1])], run_id="run-a"), run([({"n": 1}, [1.2, 1.1])], run_id="run-b")
    )
    assert all(each == answers[0] for each in answers)
    assert "earlier runs" in answers[0]["metrics"][0]["noise"]["source"]


def test_a_result_file_is_labelled_as_its_run(places, run):
    _, _, files = places(run([({"n": 1}, [1.0, 1.1])], run_id="run-a"))
    assert open_side(files[0], stores()).label == "sorting run-a"


@pytest.mark.parametrize(
    "broken",
    [
        {"ledger": 1, "usage": [], "metrics": "x", "environment": None, "spec": 3, "vcs": "v"},
        {"ledger": {"noise": {"cpu_over_wall": "x"}}, "error": {"type": None}, "parameters": [1]},
        {"outcome": "no such outcome", "started_at": "x", "reward": "y", "agent": 1, "image": 3},
        {"task": "t", "spec": {"experiments": [1, {"experiment": "e"}]}, "iteration_metrics": [1, None]},
    ],
)
def test_a_strangers_file_with_wrong_types_is_read_without_them(broken):
    document = {"run_id": "r", "iteration_metrics": [{"duration_s": 1.0}], "name": "n", **broken}
    found = run_result(json.loads(json.dumps(document)))
    assert found.run_id == "r"
    assert len(found.points) == 1
