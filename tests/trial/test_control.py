"""Whose fault a broken verifier is, on the fake sandbox. The real ones are in tests/faults."""

from __future__ import annotations

import asyncio
import errno
import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.trial.test_regrade import earlier, regrade
from tests.trial.test_task_trial import (
    STEP_FILES,
    STEPS,
    Scripted,
    host_root,
    make_task,
    rewards,
    setting_in,
)

from proctor.agents.base import AgentFailed, AgentResult, AgentTimeout, BudgetExhausted
from proctor.errors import HostError, ImageError, SandboxError
from proctor.model.outcome import ENVIRONMENT_BROKEN, Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.spec import Spec, TaskEntry
from proctor.model.trial import Lease
from proctor.sandbox.fake import Fake, FakeCommand, FakeResult
from proctor.tasks.read import read_task
from proctor.trial.task.prepare import Preparation
from proctor.trial.task_executor import TaskExecutor

pytestmark = pytest.mark.anyio
BROKEN = "/broken"
"""A file that the agent leaves, and that breaks the tests."""


@dataclass
class Breaker:
    """An agent that breaks its sandbox, or does not."""

    breaks: bool = True
    error: Exception | None = None
    name: str = "breaker"
    version: str = "1"

    async def run(self, task, sandbox, model, context):
        if self.breaks:
            sandbox.files[BROKEN] = b""
        if self.error:
            raise self.error
        return AgentResult()


def fragile(
    broken: FakeResult | None = None, text: str = "0", invalid: str | None = None, always: bool = False
):
    """Tests that break when the agent's file is there, or always."""

    def handle(command: FakeCommand) -> FakeResult:
        if "/tests/test.sh" not in command.argv[-1]:
            return FakeResult()
        if always or BROKEN in command.files:
            if invalid is not None:
                command.files["/logs/verifier/reward.txt"] = invalid.encode()
            return broken or FakeResult(exit_code=127)
        command.files["/logs/verifier/reward.txt"] = text.encode()
        return FakeResult(stdout=b"tests ran\n")

    return handle


class Run:
    """One run of a task on a fake back end, whose attempts may be several at a time."""

    def __init__(self, folder: Path, backend: Fake, toml: str = "", files=None, **options) -> None:
        self.folder, self.backend = folder, backend
        self.task = read_task(make_task(folder / "task", toml, **(files or {})))
        self.options = options
        self.begin()
        self.count = 0

    def begin(self) -> None:
        """As a process that starts or resumes the run does."""
        spec = Spec(name="s", tasks=(TaskEntry(path=str(self.task.path), agents=("oracle",)),))
        self.preparation = Preparation(spec, self.folder / "cache")
        setting = setting_in(self.folder, self.backend, **{"make_root": host_root, **self.options})
        self.executor = TaskExecutor(setting, self.preparation.plan)

    async def attempt(self, agent, **trial):
        self.count += 1
        name = trial.pop("agent", f"agent-{self.count}")
        self.preparation._agents[0, name] = agent
        planned = PlannedTrial(
            key=f"{self.count:064x}", index=self.count, kind="task", subject=self.task.name,
            subject_digest=self.task.digest, body=0, agent=name, path=str(self.task.path), **trial,
        )  # fmt: skip
        lease = Lease(
            run_id="run", key=planned.key, index=self.count, worker="w", fence=1, attempt=1, expires_at=1.0
        )
        return await self.executor.execute(planned, lease)

    def controls(self) -> list[dict]:
        return [json.loads(each.read_text()) for each in self.folder.glob("run/controls/*/control.json")]


def of(record):
    return record.outcome.value, record.reward


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (fragile(), "without writing reward.json"),
        (fragile(FakeResult(takes_s=9)), "did not end within 0.05 s"),
        (fragile(invalid="five"), "not a number"),
    ],
)
async def test_tests_that_break_in_the_agent_s_sandbox_only_are_its_failure(tmp_path, handler, reason):
    run = Run(tmp_path, Fake(handler=handler), "[verifier]\ntimeout_sec = 0.05\n")
    record = await run.attempt(Breaker())
    assert of(record) == ("failed", 0.0)
    assert record.failure.type == ENVIRONMENT_BROKEN
    assert reason in record.failure.message
    assert not record.outcome.retryable
    (control,) = run.controls()
    assert (control["works"], control["outcome"], control["reward"]) == (True, "failed", 0.0)
    assert any(f"see {control['folder']}/control.json" in note for note in record.notes)
    assert "control" in record.phases_s
    logs = tmp_path / "run" / control["folder"] / "logs" / "eval.log"
    assert logs.read_text() == "tests ran\n"
    assert not list((tmp_path / "run").glob("controls/*/trajectory.json"))


@pytest.mark.parametrize(
    ("handler", "outcome"),
    [
        (fragile(always=True), "verifier_error"),
        (fragile(FakeResult(takes_s=9), always=True), "verifier_timeout"),
        (fragile(invalid="five", always=True), "reward_invalid"),
    ],
)
async def test_tests_that_break_in_an_untouched_sandbox_too_are_the_task_s(tmp_path, handler, outcome):
    run = Run(tmp_path, Fake(handler=handler), "[verifier]\ntimeout_sec = 0.05\n")
    record = await run.attempt(Breaker())
    assert of(record) == (outcome, None)
    (control,) = run.controls()
    assert (control["works"], control["outcome"]) == (False, outcome)
    assert any("also break in an untouched sandbox" in note for note in record.notes)


async def test_no_control_is_run_as_long_as_the_tests_give_rewards(tmp_path):
    run = Run(tmp_path, Fake(handler=fragile()))
    assert of(await run.attempt(Breaker(breaks=False))) == ("failed", 0.0)
    assert not (tmp_path / "run" / "controls").exists()
    assert len(run.backend.sandboxes) == 1


async def test_attempts_at_the_same_time_share_one_control_and_a_resumed_run_finds_it(tmp_path):
    run = Run(tmp_path, Fake(handler=fragile()))
    records = await asyncio.gather(*(run.attempt(Breaker()) for _ in range(5)))
    assert {of(record) for record in records} == {("failed", 0.0)}
    assert len(run.backend.sandboxes) == 5 + 1
    await run.executor.close()
    run.begin()
    assert of(await run.attempt(Breaker())) == ("failed", 0.0)
    assert len(run.backend.sandboxes) == 6 + 1
    await run.executor.close()


async def test_other_overrides_are_another_control(tmp_path):
    run = Run(tmp_path, Fake(handler=fragile()))
    for variables in ({"A": "1"}, {"A": "2"}, {"A": "1"}):
        await run.attempt(Breaker(), overrides={"environment_variables": variables})
    assert len(run.controls()) == 2


async def test_a_damaged_record_of_a_control_is_made_again(tmp_path):
    run = Run(tmp_path, Fake(handler=fragile()))
    await run.attempt(Breaker())
    (file,) = tmp_path.glob("run/controls/*/control.json")
    file.write_text("{")
    run.begin()
    assert of(await run.attempt(Breaker())) == ("failed", 0.0)
    assert json.loads(file.read_text())["works"] is True


class FailsLater(Fake):
    """A back end of which some later sandboxes do not start."""

    fails: range = range(0)

    def sandbox(self, request):
        made = super().sandbox(request)
        if len(self.sandboxes) - 1 in self.fails:
            self.fail_start += 1
        return made


async def test_a_control_that_the_infrastructure_breaks_is_tried_again(tmp_path):
    backend = FailsLater(handler=fragile())
    backend.fails = range(1, 3)
    run = Run(tmp_path, backend)
    assert of(await run.attempt(Breaker())) == ("failed", 0.0)
    (control,) = run.controls()
    assert [each["outcome"] for each in control["tries"]] == ["sandbox_error", "sandbox_error", "failed"]


async def test_without_a_control_nobody_is_blamed_and_a_later_attempt_runs_it(tmp_path):
    backend = FailsLater(handler=fragile())
    backend.fails = range(1, 4)
    run = Run(tmp_path, backend)
    record = await run.attempt(Breaker())
    assert of(record) == ("sandbox_error", None)
    assert "stays unknown" in record.failure.message
    assert run.controls()[0]["works"] is False
    assert of(await run.attempt(Breaker())) == ("failed", 0.0)
    assert run.controls()[0]["works"] is True


async def test_a_control_that_nobody_waits_for_any_more_is_stopped(tmp_path):
    begun = asyncio.Event()

    def handle(command: FakeCommand) -> FakeResult:
        if "/tests/test.sh" in command.argv[-1] and BROKEN not in command.files:
            begun.set()
            return FakeResult(takes_s=3600)
        return FakeResult()

    run = Run(tmp_path, Fake(handler=handle), "[verifier]\ntimeout_sec = 7200\n")
    working = asyncio.create_task(run.attempt(Breaker()))
    await begun.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    await run.executor.close()
    assert not any(sandbox.running for sandbox in run.backend.sandboxes)
    assert run.controls() == []


async def test_who_waits_for_a_control_still_gets_it_when_another_is_cancelled(tmp_path):
    begun = asyncio.Event()

    def handle(command: FakeCommand) -> FakeResult:
        if "/tests/test.sh" not in command.argv[-1] or BROKEN in command.files:
            return FakeResult()
        begun.set()
        command.files["/logs/verifier/reward.txt"] = b"0"
        return FakeResult(takes_s=0.2)

    run = Run(tmp_path, Fake(handler=handle))
    one, other = (asyncio.create_task(run.attempt(Breaker())) for _ in range(2))
    await begun.wait()
    await asyncio.sleep(0)
    one.cancel()
    assert of(await other) == ("failed", 0.0)
    assert one.cancelled()
    assert len(run.controls()) == 1


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (AgentTimeout(), "agent_timeout"),
        (AgentFailed("x"), "agent_error"),
        (BudgetExhausted("x"), "budget_exhausted"),
    ],
)
async def test_an_agent_that_ended_badly_and_broke_the_tests_keeps_its_outcome_with_zero(
    tmp_path, error, outcome
):
    run = Run(tmp_path, Fake(handler=fragile()))
    record = await run.attempt(Breaker(error=error))
    assert of(record) == (outcome, 0.0)
    assert any("which counts as 0" in note for note in record.notes)
    assert run.controls() == []


async def test_a_sandbox_that_fails_under_the_agent_counts_unless_the_host_is_the_reason(tmp_path):
    run = Run(tmp_path, Fake(handler=fragile()))
    assert of(await run.attempt(Breaker(breaks=False, error=SandboxError("x")))) == ("agent_error", 0.0)
    assert of(await run.attempt(Breaker(error=SandboxError("x")))) == ("agent_error", 0.0)
    for error in (HostError("the keeper died"), OSError(errno.ENOSPC, "full")):
        wrapped = error if isinstance(error, SandboxError) else SandboxError("cannot write")
        wrapped.__cause__ = None if wrapped is error else error
        assert of(await run.attempt(Breaker(error=wrapped))) == ("sandbox_error", None)


async def test_a_sandbox_that_fails_under_the_agent_is_the_task_s_where_the_tests_never_work(tmp_path):
    run = Run(tmp_path, Fake(handler=fragile(always=True)))
    assert of(await run.attempt(Breaker(error=SandboxError("x")))) == ("verifier_error", None)


class Lost(Fake):
    """Sandboxes whose tests cannot be laid out where the agent left its file."""

    def __init__(self, error, **options):
        super().__init__(**options)
        self.error = error

    def sandbox(self, request):
        made = super().sandbox(request)
        upload = made.upload

        async def failing(source, target):
            if BROKEN in made.files and target == "/tests":
                raise self.error
            await upload(source, target)

        made.upload = failing
        return made


@pytest.mark.parametrize("error", [SandboxError("gone"), UnicodeDecodeError("utf-8", b"x", 0, 1, "y")])
async def test_tests_that_cannot_even_be_started_are_the_agent_s_failure(tmp_path, error):
    run = Run(tmp_path, Lost(error, handler=fragile()))
    record = await run.attempt(Breaker())
    assert of(record) == ("failed", 0.0)
    assert record.failure.type == ENVIRONMENT_BROKEN


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (HostError("its disk is full"), "sandbox_error"),
        (ImageError("no image"), "image_error"),
        (OSError(errno.ENOSPC, "No space left"), "sandbox_error"),
        (MemoryError(), "sandbox_error"),
    ],
)
async def test_what_is_provably_the_host_s_needs_no_control(tmp_path, error, outcome):
    run = Run(tmp_path, Lost(error, handler=fragile()))
    assert of(await run.attempt(Breaker())) == (outcome, None)
    assert run.controls() == []


async def test_the_agent_that_does_nothing_breaks_nothing(tmp_path):
    run = Run(tmp_path, Lost(SandboxError("gone"), handler=fragile(always=True)))
    idle = Breaker(breaks=False, name="nop")
    assert of(await run.attempt(idle)) == ("verifier_error", None)
    assert run.controls() == []


async def test_a_separate_verifier_has_a_separate_control(tmp_path):
    toml = f'artifacts = ["{BROKEN}"]\n[verifier]\nenvironment_mode = "separate"\n'
    run = Run(tmp_path, Fake(handler=fragile()), toml)
    record = await run.attempt(Breaker())
    assert of(record) == ("failed", 0.0)
    assert record.failure.type == ENVIRONMENT_BROKEN
    assert len(run.backend.sandboxes) == 4, "each has a sandbox of the agent's kind and one for the tests"


async def test_a_separate_verifier_that_does_not_start_is_the_infrastructure_s(tmp_path):
    toml = '[verifier]\nenvironment_mode = "separate"\n'
    backend = FailsLater(handler=fragile())
    backend.fails = range(1, 2)
    run = Run(tmp_path, backend, toml)
    assert of(await run.attempt(Breaker())) == ("sandbox_error", None)
    assert run.controls() == []


async def test_a_step_that_the_agent_broke_is_zero_and_so_are_the_later_ones(tmp_path):
    def handle(command: FakeCommand) -> FakeResult:
        if "/tests/test.sh" not in command.argv[-1] or BROKEN in command.files:
            return FakeResult()
        command.files["/logs/verifier/reward.txt"] = b"1"
        return FakeResult()

    class SecondTime(Breaker):
        async def run(self, task, sandbox, model, context):
            self.breaks = context.step == "two"
            return await super().run(task, sandbox, model, context)

    toml = STEPS + '[[steps]]\nname = "three"\n'
    files = {**STEP_FILES, "steps/three/instruction.md": "Third."}
    run = Run(tmp_path, Fake(handler=handle), toml, files)
    record = await run.attempt(SecondTime())
    assert record.outcome is Outcome.PARTIAL
    assert record.reward == pytest.approx(1 / 3)
    assert record.metrics["steps"] == {"one": 1.0, "two": 0.0}
    assert record.failure.type == ENVIRONMENT_BROKEN
    (control,) = run.controls()
    assert (control["step"], control["works"]) == ("two", True)


async def test_the_control_of_a_step_does_not_need_the_work_of_earlier_ones(tmp_path):
    def handle(command: FakeCommand) -> FakeResult:
        if command.argv[-1].endswith("setup.sh"):
            return FakeResult(exit_code=0 if "/worked" in command.files else 1)
        if "/tests/test.sh" in command.argv[-1] and BROKEN not in command.files:
            command.files["/logs/verifier/reward.txt"] = b"0"
        return FakeResult()

    class Worker(Breaker):
        async def run(self, task, sandbox, model, context):
            sandbox.files["/worked"] = b""
            self.breaks = context.step == "two"
            return await super().run(task, sandbox, model, context)

    run = Run(tmp_path, Fake(handler=handle), STEPS, {**STEP_FILES, "steps/two/workdir/setup.sh": "x"})
    record = await run.attempt(Worker())
    assert of(record) == ("failed", 0.0)
    (control,) = run.controls()
    assert control["works"] is True
    assert any("setup.sh" in note for note in control["tries"][0]["notes"])


async def test_a_stored_workspace_that_breaks_the_tests_is_its_agent_s_failure(tmp_path, monkeypatch):
    def handle(command: FakeCommand) -> FakeResult:
        if "/tests/test.sh" in command.argv[-1] and not command.env.get("RESTORED"):
            command.files["/logs/verifier/reward.txt"] = b"0"
        return FakeResult()

    class Restoring(Fake):
        def sandbox(self, request):
            restored = {"RESTORED": "yes"} if request.state else {}
            return super().sandbox(replace(request, env={**request.env, **restored}))

    monkeypatch.setattr("tests.trial.test_regrade.Fake", lambda handler: Restoring(handler=handle))
    record, _ = await regrade(tmp_path, earlier("verifier_error"))
    assert of(record) == ("failed", 0.0)
    assert record.failure.type == ENVIRONMENT_BROKEN


async def test_a_vetting_blames_no_reference_solution(tmp_path):
    run = Run(tmp_path, Fake(handler=fragile()))
    run.executor = TaskExecutor(run.executor.setting, run.preparation.plan, controlled=False)
    assert of(await run.attempt(Breaker())) == ("verifier_error", None)


async def test_what_cannot_be_collected_does_not_cost_the_verdict(tmp_path):
    class Unreadable(Fake):
        def sandbox(self, request):
            made = super().sandbox(request)

            async def download(source, target, **options):
                if source == "/logs/artifacts":
                    raise UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed")
                return await type(made).download(made, source, target, **options)

            made.download = download
            return made

    run = Run(tmp_path, Unreadable(handler=rewards("1")))
    record = await run.attempt(Scripted())
    assert of(record) == ("passed", 1.0)
    assert any("could not be kept" in note for note in record.notes)
