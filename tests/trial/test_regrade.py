"""Judging stored workspaces again, on the fake sandbox. The real one is in tests/cli/test_eval.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord, Failure
from proctor.model.spec import SandboxSpec, Spec, TaskEntry
from proctor.model.trial import Lease
from proctor.sandbox.base import Root
from proctor.sandbox.fake import Fake, FakeCommand, FakeResult
from proctor.store.blobs import open_blobs
from proctor.tasks.read import read_task
from proctor.trial.collect import Collector
from proctor.trial.regrade import EarlierAttempt, RegradeExecutor
from proctor.trial.task.prepare import Preparation
from proctor.trial.task.setting import TaskSetting

pytestmark = pytest.mark.anyio

STEPS = '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n[[steps]]\nname = "three"\n'


def make_task(folder: Path, toml: str) -> Path:
    contents = {
        "task.toml": f'schema_version = "1.4"\n{toml}',
        "instruction.md": "Do it.",
        "tests/test.sh": "",
    }
    for step in ("one", "two", "three"):
        contents[f"steps/{step}/instruction.md"] = f"Do {step}."
    for name, text in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def rewarding(text: str | None) -> Callable[[FakeCommand], FakeResult]:
    def handle(command: FakeCommand) -> FakeResult:
        if "/tests/test.sh" in command.argv[-1] and text is not None:
            command.files["/logs/verifier/reward.txt"] = text.encode()
        return FakeResult(stdout=b"judged\n")

    return handle


def earlier(outcome: str = "failed", **more) -> AttemptRecord:
    return AttemptRecord(key="k", number=1, outcome=Outcome(outcome), started_at=0.0, ended_at=1.0, **more)


async def regrade(
    tmp_path: Path,
    record: AttemptRecord | str,
    *,
    reward: str | None = "1",
    toml: str = "",
    heard: list | None = None,
) -> tuple[AttemptRecord, Fake]:
    task = read_task(make_task(tmp_path / "task", toml))
    backend = Fake(handler=rewarding(reward))

    async def root(task, environment=None):
        return Root(host=True, workdir="/app")

    spec = Spec(name="s", tasks=(TaskEntry(path=str(task.path), agents=("oracle",)),))
    setting = TaskSetting(
        run_id="again",
        run_dir=tmp_path / "run",
        sandbox=SandboxSpec(),
        backend=backend,
        make_root=root,
        collector=Collector(tmp_path / "run", open_blobs(tmp_path / "blobs")),
        given={},
        on_log=(lambda trial, log, data: heard.append((trial.key[0], log, data)))
        if heard is not None
        else None,
    )
    trial = PlannedTrial(
        key="k" * 64, index=0, kind="task", subject=task.name, subject_digest=task.digest, body=0,
        agent="oracle", path=str(task.path),
    )  # fmt: skip
    lease = Lease(run_id="again", key=trial.key, index=0, worker="w", fence=1, attempt=1, expires_at=1.0)
    state = tmp_path / "state.tar"
    state.write_bytes(b"")
    found = record if isinstance(record, str) else EarlierAttempt("first", record, state)
    executor = RegradeExecutor(setting, Preparation(spec, tmp_path / "cache").plan, lambda _: found)
    result = await executor.execute(trial, lease)
    await executor.close()
    return result, backend


async def test_the_workspace_is_restored_and_no_agent_runs(tmp_path):
    record, backend = await regrade(tmp_path, earlier())
    assert (record.outcome, record.reward) == (Outcome.PASSED, 1.0)
    (sandbox,) = backend.sandboxes
    assert sandbox.request.state == tmp_path / "state.tar"
    assert not any("solve.sh" in command.argv[-1] for command in sandbox.commands)
    assert "agent" not in record.phases_s
    assert any("the workspace of run first; no agent ran" in note for note in record.notes)


async def test_how_the_agent_ended_stays_and_its_reward_is_new(tmp_path):
    timed_out = earlier("agent_timeout", failure=Failure(phase="agent", type="TimeoutError", message="late"))
    record, _ = await regrade(tmp_path, timed_out, reward="0.5")
    assert (record.outcome, record.reward) == (Outcome.AGENT_TIMEOUT, 0.5)
    assert record.failure.message == "late"


async def test_a_verifier_that_was_broken_can_be_mended(tmp_path):
    record, _ = await regrade(tmp_path, earlier("verifier_error"))
    assert record.outcome is Outcome.PASSED


async def test_without_a_workspace_the_trial_is_skipped_with_the_reason(tmp_path):
    record, backend = await regrade(tmp_path, "nothing was stored")
    assert record.outcome is Outcome.SKIPPED
    assert record.failure.message == "nothing was stored"
    assert backend.sandboxes == []


@pytest.mark.parametrize(
    ("known", "reward", "strategy", "steps", "value"),
    [
        (
            {"one": 1.0, "two": 0.5, "three": 0.0},
            "1",
            "mean",
            {"one": 1.0, "two": 0.5, "three": 1.0},
            2.5 / 3,
        ),
        ({"one": 1.0, "two": 0.5, "three": 0.0}, "1", "final", {"one": 1.0, "two": 0.5, "three": 1.0}, 1.0),
        ({"one": 1.0, "two": 0.0}, "1", "mean", {"one": 1.0, "two": 1.0}, 2 / 3),
        ({"one": 1.0, "two": 0.0}, "1", "final", {"one": 1.0, "two": 1.0}, 0.0),
        ({}, "0.5", "mean", {"one": 0.5}, 0.5 / 3),
    ],
)
async def test_of_several_steps_the_last_is_graded_again(tmp_path, known, reward, strategy, steps, value):
    toml = f'multi_step_reward_strategy = "{strategy}"\n{STEPS}'
    record, _ = await regrade(tmp_path, earlier(metrics={"steps": known}), reward=reward, toml=toml)
    assert record.metrics["steps"] == steps
    assert record.reward == pytest.approx(value)


async def test_a_last_step_without_a_verdict_has_none_in_all(tmp_path):
    record, _ = await regrade(tmp_path, earlier(metrics={"steps": {"one": 1.0}}), reward=None, toml=STEPS)
    assert (record.outcome, record.reward) == (Outcome.VERIFIER_ERROR, None)


async def test_a_listener_hears_what_the_tests_print(tmp_path):
    heard: list = []
    await regrade(tmp_path, earlier(), heard=heard)
    assert ("k", "eval.log", b"judged\n") in heard
    assert (tmp_path / "run/trials/task/0/logs/eval.log").read_bytes() == b"judged\n"
