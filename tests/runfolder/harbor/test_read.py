"""A Harbor job becomes a run: every number it has, and blame as far as its exceptions tell."""

from __future__ import annotations

import json

import pytest
from tests.runfolder.harbor.conftest import exception, timing

from proctor.errors import UsageError
from proctor.model.trial import RunStatus
from proctor.render.reporters import write_reports
from proctor.runfolder.harbor.read import is_job, read_job
from proctor.runfolder.read import RunData
from proctor.runfolder.transfer import import_data
from proctor.store.blobs import open_blobs
from proctor.store.open import open_store


@pytest.fixture
def blobs(tmp_path):
    return open_blobs(tmp_path / "blobs")


def records(job, blobs):
    return [trial.counted for trial in read_job(job, blobs).trials]


def test_a_job_is_told_from_a_run_folder(tmp_path, job):
    assert is_job(job)
    (job / "manifest.json").write_text("{}")
    assert not is_job(job)
    assert not is_job(tmp_path / "absent")
    (tmp_path / "config.json").write_text('{"debug": true}')
    assert not is_job(tmp_path)


def test_times_usage_files_and_names_are_kept(job, add_trial, blobs):
    add_trial(
        agent_result={"n_input_tokens": 100, "n_cache_tokens": 40, "n_output_tokens": 7, "cost_usd": 0.25},
        config={"agent": {"model_name": "openrouter/a/b", "kwargs": {"temperature": 0, "api_key": "k" * 40}}},
        files={
            "verifier/test-stdout.txt": "tested\n",
            "verifier/reward.txt": "1\n",
            "agent/coder.txt": "worked\n",
            "artifacts/logs/artifacts/out.txt": "made\n",
        },
    )
    data = read_job(job, blobs)
    (trial,) = data.trials
    planned, record = trial.planned, trial.counted
    assert (planned.subject, planned.agent, planned.agent_version) == ("made/hello", "coder", "2.0")
    assert planned.model == "openrouter/a/b"
    assert planned.overrides["agent_options"]["temperature"] == 0
    assert "kkkk" not in json.dumps(planned.overrides)
    assert record.phases_s == {"start": 1.0, "setup": 1.0, "agent": 4.0, "verify": 1.0}
    assert record.took_s == 5.0
    assert record.usage == {
        "prompt_tokens": 100, "completion_tokens": 7, "cached_tokens": 40, "cost_usd": 0.25,
    }  # fmt: skip
    assert {each.name for each in record.artifacts} == {
        "logs/eval.log", "logs/coder.txt", "verifier/reward.txt", "artifacts/files/out.txt",
        "harbor/config.json", "harbor/lock.json", "harbor/result.json",
    }  # fmt: skip
    info = data.info
    assert (info.name, info.status, info.tags, info.imported) == (
        "nightly",
        RunStatus.DONE,
        ("harbor",),
        "harbor",
    )
    assert info.versions == {"harbor": "0.24.0"}
    assert "e2fa1451-d2e6-4bda-82d5-49fbae53d467" in info.notes


def test_trials_of_one_task_and_agent_are_its_rollouts(job, add_trial, blobs):
    for task in ("a/x", "a/y", "a/x"):
        add_trial(task)
    data = read_job(job, blobs)
    assert [(each.planned.subject, each.planned.rollout) for each in data.trials] == [
        ("a/x", 0), ("a/y", 0), ("a/x", 1),
    ]  # fmt: skip
    assert len({each.planned.key for each in data.trials}) == 3


@pytest.mark.parametrize(
    ("kind", "rewards", "more", "outcome", "reward"),
    [
        ("AgentTimeoutError", {"reward": 1}, {}, "agent_timeout", 1.0),
        ("AgentTimeoutError", None, {}, "agent_timeout", 0.0),
        ("NonZeroAgentExitCodeError", {"reward": 0.5}, {}, "agent_error", 0.5),
        ("ContextWindowExceededError", None, {}, "agent_error", 0.0),
        ("ApiRateLimitError", {"reward": 0}, {}, "provider_error", None),
        ("ModelNotFoundError", None, {}, "provider_error", None),
        ("VerifierTimeoutError", None, {}, "verifier_timeout", None),
        ("RewardFileNotFoundError", None, {}, "verifier_error", None),
        ("VerifierOutputParseError", None, {}, "reward_invalid", None),
        ("SandboxBuildFailedError", None, {}, "image_error", None),
        ("EnvironmentStartTimeoutError", None, {}, "sandbox_error", None),
        ("CancelledError", None, {}, "cancelled", None),
        ("RuntimeError", None, {"verifier": None}, "sandbox_error", None),
        ("RuntimeError", None, {}, "verifier_error", None),
    ],
)
def test_an_exception_says_whose_fault_it_was(job, add_trial, blobs, kind, rewards, more, outcome, reward):
    add_trial(verifier_result={"rewards": rewards}, exception_info=exception(kind), **more)
    (record,) = records(job, blobs)
    assert (record.outcome.value, record.reward) == (outcome, reward)
    assert record.failure.type == kind
    assert bool(record.notes) == (kind == "RuntimeError")


@pytest.mark.parametrize(
    ("rewards", "outcome", "reward"),
    [
        ({"reward": 0}, "failed", 0.0),
        ({"reward": 0.25, "style": 1}, "partial", 0.25),
        ({"a": 0.5, "b": 1}, "partial", 0.75),
        (None, "skipped", None),
    ],
)
def test_a_reward_counts_as_in_reward_json(job, add_trial, blobs, rewards, outcome, reward):
    add_trial(verifier_result={"rewards": rewards})
    (record,) = records(job, blobs)
    assert (record.outcome.value, record.reward) == (outcome, reward)


def test_what_harbor_did_not_count_is_counted_in_the_trajectory(job, add_trial, blobs):
    call = {"tool_call_id": "1", "function_name": "sh", "arguments": {}}
    step = {"source": "agent", "message": "", "tool_calls": [call], "metrics": {"prompt_tokens": 9}}
    add_trial(
        files={"agent/trajectory.json": json.dumps({"schema_version": "ATIF-v1.7", "steps": [step, step]})}
    )
    (record,) = records(job, blobs)
    assert record.usage == {"prompt_tokens": 18, "tool_calls": 2, "steps": 2}
    assert "trajectory.json" in {each.name for each in record.artifacts}


def test_steps_keep_their_rewards_and_the_last_one_its_files(job, add_trial, blobs):
    steps = [
        {"step_name": "one", "verifier_result": {"rewards": {"reward": 1}}, "agent_execution": timing(3, 5),
         "agent_result": {"n_input_tokens": 10}},
        {"step_name": "two", "verifier_result": {"rewards": {"reward": 0}}, "agent_execution": timing(5, 8),
         "agent_result": {"n_input_tokens": 5}, "exception_info": exception("AgentTimeoutError")},
    ]  # fmt: skip
    add_trial(
        step_results=steps, agent_result=None, agent_execution=None, verifier=None,
        verifier_result={"rewards": {"reward": 0.5}},
        files={"steps/one/verifier/test-stdout.txt": "1", "steps/two/verifier/test-stdout.txt": "2"},
    )  # fmt: skip
    (record,) = records(job, blobs)
    assert (record.outcome.value, record.reward) == ("agent_timeout", 0.5)
    assert record.metrics["steps"] == {"one": 1.0, "two": 0.0}
    assert record.phases_s["agent"] == 5.0
    assert record.usage["prompt_tokens"] == 15
    names = {each.name for each in record.artifacts}
    assert {"logs/eval.log", "steps/one/verifier/test-stdout.txt"} <= names


def test_a_link_in_a_trial_is_not_followed(tmp_path, job, add_trial, blobs):
    (tmp_path / "private.txt").write_text("private")
    folder = add_trial(files={"agent/a.txt": "a"})
    (folder / "agent" / "b.txt").symlink_to(tmp_path / "private.txt")
    (folder / "more").symlink_to(tmp_path)
    (record,) = records(job, blobs)
    assert not any(each.name.endswith(("b.txt", "private.txt")) for each in record.artifacts)


def test_trials_without_a_result_make_the_run_a_cancelled_one(job, add_trial, blobs):
    add_trial()
    (add_trial() / "result.json").unlink()
    data = read_job(job, blobs)
    assert data.info.status is RunStatus.CANCELLED
    assert data.warnings == ("1 of 2 trials of the job have no result",)


def test_what_cannot_be_imported_says_why(job, add_trial, blobs):
    with pytest.raises(UsageError, match="no trial has ended"):
        read_job(job, blobs)
    folder = add_trial()
    with pytest.raises(UsageError, match="import the job's folder"):
        read_job(folder, blobs)
    (folder / "result.json").write_text('{"trial_name": 3}')
    with pytest.raises(UsageError, match="'trial_name'"):
        read_job(job, blobs)


def test_an_import_is_a_run_with_a_folder_and_the_second_changes_nothing(tmp_path, job, add_trial, blobs):
    add_trial(files={"verifier/test-stdout.txt": "tested\n"})
    add_trial("made/other", verifier_result=None, exception_info=exception("ApiOverloadedError"))
    with open_store(str(tmp_path / "a.db")) as store:
        for added in (True, False):
            data = read_job(job, blobs)
            done = import_data(store, blobs, data, tmp_path / "rollouts", write_reports, job)
            assert done.added is added
        stored = RunData.from_store(store, done.info.id)
        assert stored.info.counts == {"passed": 1, "provider_error": 1}
        folder = tmp_path / "rollouts" / "nightly" / done.info.id
        assert stored.info.folder == str(folder)
        assert RunData.from_folder(folder).trials == stored.trials
        assert (folder / "trials/made__hello/0/logs/eval.log").read_text() == "tested\n"
        assert (folder / "report.html").is_file()
        add_trial()
        with pytest.raises(UsageError, match="differs"):
            import_data(store, blobs, read_job(job, blobs), tmp_path / "rollouts", write_reports, job)
        assert stored.info.imported == "harbor"
