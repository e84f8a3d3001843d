"""A run becomes a Harbor job, and read back it is the same run."""

from __future__ import annotations

import json
import math

import pytest
from msgspec.structs import replace
from tests.made_rollouts import Study, planned, record, run_of

from proctor.errors import UsageError
from proctor.model.outcome import Outcome
from proctor.runfolder.harbor.outcomes import exception_type, outcome_of
from proctor.runfolder.harbor.read import read_job
from proctor.runfolder.harbor.write import write_job
from proctor.store.blobs import open_blobs


@pytest.fixture
def blobs(tmp_path):
    return open_blobs(tmp_path / "blobs")


def document(path):
    return json.loads(path.read_text())


def ended(trial):
    return trial.planned.subject, trial.outcome, trial.counted.reward


def test_every_outcome_survives_the_way_to_harbor_and_back(tmp_path, blobs):
    outcomes = [each.value for each in Outcome if each is not Outcome.PARTIAL]
    data = (
        Study().cell("org/a", [*outcomes, 0.25]).cell("org/b", [1.0, None], agent="coder", model="x/y").data()
    )
    assert write_job(data, blobs, tmp_path / "job") == len(outcomes) + 2
    back = read_job(tmp_path / "job", blobs)
    assert sorted(map(ended, back.trials)) == sorted(ended(each) for each in data.trials if each.counted)
    by_task = {each.planned.subject: each.planned for each in back.trials}
    assert (by_task["org/b"].agent, by_task["org/b"].model) == ("coder", "x/y")
    assert back.warnings == ("1 of 19 trials of the job have no result",)


def test_an_exception_tells_the_outcome_without_our_own_word_for_it():
    told = [each for each in Outcome if exception_type(each)]
    assert set(Outcome) - set(told) == {Outcome.PASSED, Outcome.FAILED, Outcome.PARTIAL}
    assert all(outcome_of(exception_type(each), verifying=False) == (each, True) for each in told)


def test_a_trial_has_the_files_that_harbor_writes(tmp_path, blobs):
    steps = [{"step_id": 1, "source": "agent", "message": "", "metrics": {"prompt_tokens": 1, "requests": 2}}]
    trajectory = json.dumps({"schema_version": "ATIF-v1.4", "steps": steps}).encode()
    files = {
        "trajectory.json": trajectory, "logs/eval.log": b"tested", "logs/agent.txt": b"said",
        "verifier/ctrf.json": b"{}", "artifacts/files/a.txt": b"a", "artifacts/diff.patch": b"d",
        "state.tar": b"s", "rubrics.json": b"[]",
    }  # fmt: skip
    kept = tuple(blobs.put_bytes(content, name) for name, content in files.items())
    usage = {"prompt_tokens": 100, "cached_tokens": 40, "completion_tokens": 7, "cost_usd": 0.5}
    trial = planned(0, "org/a", "coder", model="openai/gpt")
    data = run_of([(trial, [record(trial, artifacts=kept, usage=usage)])])
    write_job(data, blobs, tmp_path / "job")
    folder = tmp_path / "job" / "a__0000000"
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert found == {
        "config.json", "result.json", "agent/trajectory.json", "agent/agent.txt", "verifier/test-stdout.txt",
        "verifier/ctrf.json", "verifier/reward.json", "artifacts/logs/artifacts/a.txt",
        "artifacts/diff.patch", "proctor/rubrics.json",
    }  # fmt: skip
    result = document(folder / "result.json")
    assert result["agent_info"]["model_info"] == {"name": "gpt", "provider": "openai"}
    assert result["agent_result"]["n_input_tokens"] == 100
    assert result["agent_result"]["metadata"]["proctor"]["blame"] == "agent"
    assert document(folder / "agent/trajectory.json")["steps"][0]["metrics"] == {
        "prompt_tokens": 1, "extra": {"requests": 2},
    }  # fmt: skip


def test_the_statistics_count_a_trial_without_reward_as_harbor_does(tmp_path, blobs):
    data = Study().cell("org/a", [1.0, 0.0, 0.0, "sandbox_error"]).cell("org/b", [1.0, 1.0, 1.0, 1.0]).data()
    write_job(data, blobs, tmp_path / "job")
    stats = document(tmp_path / "job" / "result.json")["stats"]
    (found,) = stats["evals"].values()
    assert found["metrics"] == [{"mean": 5 / 8}]
    assert found["n_trials"] == 7
    assert {kind: len(names) for kind, names in found["exception_stats"].items()} == {"SandboxError": 1}
    assert math.isclose(found["pass_at_k"]["2"], (0.5 + 1) / 2)
    assert math.isclose(found["pass_at_k"]["4"], 1)
    assert stats["n_errored_trials"] == 1


def test_only_the_attempt_that_counts_is_written_and_the_others_are_retries(tmp_path, blobs):
    trial = planned(0, "org/a")
    first = record(trial, "sandbox_error")
    data = run_of([(trial, [first, replace(record(trial), number=2)])])
    assert write_job(data, blobs, tmp_path / "job") == 1
    assert document(tmp_path / "job" / "result.json")["stats"]["n_retries"] == 1


def test_a_run_of_experiments_is_refused(tmp_path, blobs, runs):
    with pytest.raises(UsageError, match="experiments"):
        write_job(runs.failures(), blobs, tmp_path / "job")
    assert not (tmp_path / "job").exists()


def test_names_of_an_agents_files_lead_nowhere_else(tmp_path, blobs):
    names = ("logs/../../../out.txt", "logs/trajectory.json", "trajectory.json", "logs/../result.json")
    kept = tuple(blobs.put_bytes(b"mine", name) for name in names)
    trial = planned(0, "org/a")
    write_job(run_of([(trial, [record(trial, artifacts=kept)])]), blobs, tmp_path / "job")
    folder = tmp_path / "job" / "a__0000000"
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert found == {
        "config.json", "result.json", "verifier/reward.json", "agent/out.txt", "agent/result.json",
        "proctor/logs/trajectory.json",
    }  # fmt: skip
    assert document(folder / "result.json")["task_name"] == "org/a"
