"""Every way an attempt at a task can end, on the fake sandbox. The real ones are in tests/integration."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from proctor.agents.base import AgentContext, AgentFailed, AgentResult, BudgetExhausted
from proctor.errors import ImageError, ProviderError, SandboxError
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.spec import SandboxSpec, Spec, TaskEntry
from proctor.model.trial import Lease
from proctor.sandbox.base import Root
from proctor.sandbox.fake import Fake, FakeCommand, FakeResult
from proctor.store.blobs import FolderBlobs
from proctor.tasks.read import read_task
from proctor.trial.collect import Collector
from proctor.trial.task.prepare import Preparation
from proctor.trial.task_trial import TaskExecutor, TaskSetting

pytestmark = pytest.mark.anyio


@dataclass
class Scripted:
    """An agent that does what the test says."""

    act: Callable[[AgentContext], None] = lambda context: None
    name: str = "scripted"
    version: str = "1"
    seen: list[AgentContext] = field(default_factory=list)

    async def run(self, task, sandbox, model, context):
        self.seen.append(context)
        self.act(context)
        return AgentResult(usage={"steps": 1}, notes=("a note",))


def make_task(folder: Path, toml: str = "", **files: str) -> Path:
    contents = {
        "task.toml": f'schema_version = "1.4"\n{toml}',
        "instruction.md": "Do it.",
        "tests/test.sh": "",
        "environment/Dockerfile": "FROM debian:bookworm-slim\n",
        **files,
    }
    for name, text in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def rewards(*texts: str | None, name: str = "reward.txt") -> Callable[[FakeCommand], FakeResult]:
    """A verifier that writes these rewards, one per call; None writes nothing."""
    left = list(texts)

    def handle(command: FakeCommand) -> FakeResult:
        if "/tests/test.sh" in command.argv[-1]:
            text = left.pop(0) if len(left) > 1 else left[0]
            if text is not None:
                command.files[f"/logs/verifier/{name}"] = text.encode()
            return FakeResult(stdout=b"tests ran\n")
        return FakeResult()

    return handle


async def host_root(task, environment=None):
    return Root(host=True, workdir="/app")


def setting_in(folder: Path, backend: Fake, **options) -> TaskSetting:
    """Everything a trial needs, below one folder."""
    return TaskSetting(
        run_id="run",
        run_dir=folder / "run",
        sandbox=SandboxSpec(),
        backend=backend,
        collector=Collector(folder / "run", FolderBlobs(folder / "blobs")),
        **{"make_root": host_root, "given": {}, "worker": "w", **options},
    )


async def attempt(
    tmp_path: Path,
    *,
    agent: Scripted | None = None,
    handler: Callable[[FakeCommand], FakeResult] | None = None,
    backend: Fake | None = None,
    toml: str = "",
    entry: dict | None = None,
    overrides: dict | None = None,
    make_root: Callable | None = None,
    given: dict[str, str] | None = None,
    files: dict[str, str] | None = None,
    **options,
) -> AttemptRecord:
    folder = make_task(tmp_path / "task", toml, **(files or {}))
    task = read_task(folder)
    backend = backend or Fake(handler=handler or rewards("1"))

    spec = Spec(name="s", tasks=(TaskEntry(path=str(folder), agents=("nop",), **(entry or {})),))
    preparation = Preparation(spec, tmp_path / "cache")
    if agent:
        preparation._agents[0, "nop"] = agent
    setting = setting_in(tmp_path, backend, make_root=make_root or host_root, given=given or {}, **options)
    trial = PlannedTrial(
        key="k" * 64,
        index=0,
        kind="task",
        subject=task.name,
        subject_digest=task.digest,
        body=0,
        agent="nop",
        path=str(folder),
        overrides=overrides or {},
    )
    lease = Lease(run_id="run", key=trial.key, index=0, worker="w", fence=1, attempt=1, expires_at=1.0)
    executor = TaskExecutor(setting, preparation.plan)
    record = await executor.execute(trial, lease)
    await executor.close()
    assert all(not sandbox.running for sandbox in backend.sandboxes if hasattr(sandbox, "running"))
    return record


@pytest.mark.parametrize(
    ("text", "outcome", "reward"),
    [("1", "passed", 1.0), ("0", "failed", 0.0), ("0.25\n", "partial", 0.25), ("1.0", "passed", 1.0)],
)
async def test_the_reward_decides(tmp_path, text, outcome, reward):
    record = await attempt(tmp_path, handler=rewards(text))
    assert (record.outcome, record.reward) == (Outcome(outcome), reward)
    assert {"image", "start", "agent", "verify", "collect", "stop"} <= record.phases_s.keys()
    assert any("host-root" in note for note in record.notes)


@pytest.mark.parametrize("text", ["", "nan", "inf", "-1", "1.5", "yes", "1 1"])
async def test_an_absurd_reward_is_the_tasks_fault(tmp_path, text):
    record = await attempt(tmp_path, handler=rewards(text))
    assert (record.outcome, record.reward) == (Outcome.REWARD_INVALID, None)
    assert record.failure.phase == "verify"


async def test_reward_json_wins_and_keeps_its_parts(tmp_path):
    text = json.dumps({"reward": 0.5, "speed": 12})
    record = await attempt(tmp_path, handler=rewards(text, name="reward.json"))
    assert record.reward == 0.5
    assert record.metrics["rewards"] == {"reward": 0.5, "speed": 12.0}


@pytest.mark.parametrize(
    "text", ["{}", "[1]", '{"reward": true}', '{"reward": NaN}', '{"a": 1e300}', "{", '"x"']
)
async def test_a_reward_json_nobody_can_read_is_invalid(tmp_path, text):
    assert (
        await attempt(tmp_path, handler=rewards(text, name="reward.json"))
    ).outcome is Outcome.REWARD_INVALID


async def test_tests_that_write_nothing_are_the_tasks_fault_whatever_their_exit_code(tmp_path):
    record = await attempt(tmp_path, handler=rewards(None))
    assert record.outcome is Outcome.VERIFIER_ERROR
    assert "exit code 0" in record.failure.message


async def test_a_reward_written_before_the_verifier_does_not_count(tmp_path):
    def forge(command: FakeCommand) -> FakeResult:
        if "mkdir" in command.argv[-1]:
            command.files["/logs/verifier/reward.txt"] = b"1"
        return FakeResult()

    assert (await attempt(tmp_path, handler=forge)).outcome is Outcome.VERIFIER_ERROR


async def test_tests_that_do_not_end_are_the_tasks_fault(tmp_path):
    def slow(command: FakeCommand) -> FakeResult:
        return FakeResult(takes_s=3600 if "/tests/test.sh" in command.argv[-1] else 0)

    record = await attempt(tmp_path, handler=slow, toml="[verifier]\ntimeout_sec = 0.05\n")
    assert record.outcome is Outcome.VERIFIER_TIMEOUT


def raising(error: BaseException) -> Callable[[AgentContext], None]:
    def act(context: AgentContext) -> None:
        raise error

    return act


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (TimeoutError(), "agent_timeout"),
        (AgentFailed("broke"), "agent_error"),
        (BudgetExhausted("spent"), "budget_exhausted"),
        (ValueError("a bug of the agent"), "agent_error"),
    ],
)
async def test_an_agent_that_ended_badly_is_still_judged_and_scored(tmp_path, error, outcome):
    record = await attempt(tmp_path, agent=Scripted(raising(error)), handler=rewards("0.5"))
    assert (record.outcome, record.reward) == (Outcome(outcome), 0.5)
    assert record.failure.phase == "agent"
    assert ("Traceback" in record.failure.traceback) == isinstance(error, ValueError)


async def test_an_agent_that_ended_badly_gets_zero_when_the_verifier_cannot_say(tmp_path):
    record = await attempt(tmp_path, agent=Scripted(raising(AgentFailed("x"))), handler=rewards(None))
    assert (record.outcome, record.reward) == (Outcome.AGENT_ERROR, 0.0)


@pytest.mark.parametrize(
    ("error", "outcome"), [(ProviderError("429"), "provider_error"), (SandboxError("gone"), "sandbox_error")]
)
async def test_what_is_not_the_agents_fault_is_not_scored(tmp_path, error, outcome):
    record = await attempt(tmp_path, agent=Scripted(raising(error)))
    assert (record.outcome, record.reward) == (Outcome(outcome), None)


async def test_a_sandbox_that_does_not_start_is_infrastructure(tmp_path):
    record = await attempt(tmp_path, backend=Fake(fail_start=1))
    assert record.outcome is Outcome.SANDBOX_ERROR
    assert record.failure.phase == "start"


async def test_an_image_that_cannot_be_made_is_infrastructure(tmp_path):
    async def root(task, environment=None):
        raise ImageError("Dockerfile:3: RUN false")

    record = await attempt(tmp_path, make_root=root)
    assert (record.outcome, record.failure.phase) == (Outcome.IMAGE_ERROR, "image")


async def test_an_unset_variable_is_the_authors_fault(tmp_path):
    toml = '[environment]\nenv = { A = "${NOT_SET}", B = "${ALSO:-fine}" }\n'
    record = await attempt(tmp_path, toml=toml)
    assert record.outcome is Outcome.INVALID
    assert "NOT_SET" in record.failure.message


async def test_variables_come_from_the_run_and_the_machine(tmp_path):
    agent = Scripted()
    toml = '[environment]\nenv = { A = "${GIVEN}", B = "${ALSO:-fine}" }\n'
    await attempt(
        tmp_path,
        agent=agent,
        toml=toml,
        given={"GIVEN": "x"},
        overrides={"environment_variables": {"C": "run"}},
    )
    assert agent.seen[0].env == {"A": "x", "B": "fine", "C": "run"}


async def test_a_task_that_changed_since_the_plan_is_invalid(tmp_path):
    folder = make_task(tmp_path / "task")
    digest = read_task(folder).digest
    record = await attempt(tmp_path, files={"instruction.md": "Other."})
    assert record.outcome is Outcome.PASSED, "the helper plans after writing"
    assert read_task(folder).digest != digest


async def test_a_multi_step_task_is_the_mean_of_its_steps(tmp_path):
    toml = '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n'
    files = {"steps/one/instruction.md": "First.", "steps/two/instruction.md": "Second."}
    agent = Scripted()
    record = await attempt(tmp_path, agent=agent, toml=toml, files=files, handler=rewards("1", "0"))
    assert (record.outcome, record.reward) == (Outcome.PARTIAL, 0.5)
    assert [context.instruction for context in agent.seen] == ["First.", "Second."]
    assert record.metrics["steps"] == {"one": 1.0, "two": 0.0}


async def test_a_step_below_its_minimum_ends_the_task(tmp_path):
    toml = '[[steps]]\nname = "one"\nmin_reward = 1\n[[steps]]\nname = "two"\n'
    files = {"steps/one/instruction.md": "First.", "steps/two/instruction.md": "Second."}
    agent = Scripted()
    record = await attempt(tmp_path, agent=agent, toml=toml, files=files, handler=rewards("0.5"))
    assert record.reward == 0.25
    assert len(agent.seen) == 1


async def test_secrets_are_taken_out_of_logs_trajectories_and_failures(tmp_path):
    secret = "sk-very-secret-value"

    def act(context: AgentContext) -> None:
        context.log("agent.txt", b"half sk-very-se")
        context.log("agent.txt", b"cret-value done")
        context.trajectory.add("agent", f"my key is {secret}")
        raise AgentFailed(f"refused {secret}")

    record = await attempt(tmp_path, agent=Scripted(act), given={"MY_API_KEY": secret})
    written = b"".join(file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file())
    written += b"".join(file.read_bytes() for file in (tmp_path / "blobs").rglob("*") if file.is_file())
    assert secret.encode() not in written
    assert b"half [redacted:MY_API_KEY] done" in written
    assert secret not in record.failure.message


async def test_a_prepared_task_is_scored_by_its_rubrics(tmp_path):
    folder = tmp_path / "prepared"
    (folder / "repo").mkdir(parents=True)
    (folder / "repo/main.py").write_text("print(1)\n")
    (folder / "tests").mkdir()
    for name in ("a.sh", "b.sh"):
        (folder / "tests" / name).write_text("")
    meta = {
        "name": "p",
        "instructions": "Fix.",
        "rubrics": [
            {"id": "works", "weight": 3, "tests": ["a.sh"]},
            {"id": "fast", "weight": 1, "tests": ["b.sh"]},
            {"id": "pretty", "weight": 9},
        ],
    }
    (folder / "tb_meta.json").write_text(json.dumps(meta))
    uploaded: dict[str, bytes] = {}

    def handle(command: FakeCommand) -> FakeResult:
        uploaded.update(command.files)
        return FakeResult(exit_code=1 if command.argv[-1].endswith("b.sh") else 0)

    backend = Fake(handler=handle)
    spec = Spec(name="s", tasks=(TaskEntry(path=str(folder), agents=("nop",)),))
    task = read_task(folder)

    setting = setting_in(tmp_path, backend)
    trial = PlannedTrial(
        key="k" * 64,
        index=0,
        kind="task",
        subject="p",
        subject_digest=task.digest,
        body=0,
        agent="nop",
        path=str(folder),
    )
    lease = Lease(run_id="run", key=trial.key, index=0, worker="w", fence=1, attempt=1, expires_at=1.0)
    record = await TaskExecutor(setting, Preparation(spec, tmp_path / "cache").plan).execute(trial, lease)
    assert (record.outcome, record.reward) == (Outcome.PARTIAL, 0.75)
    assert uploaded["/app/main.py"] == b"print(1)\n"
    rows = json.loads((tmp_path / "run/trials/p/0/rubrics.json").read_text())
    assert [(row["id"], row["unit_score"], row["status"]) for row in rows] == [
        ("works", 1.0, "tested"),
        ("fast", 0.0, "tested"),
        ("pretty", None, "untested"),
    ]


async def test_a_sandbox_that_was_started_ahead_is_the_one_that_is_used(tmp_path):
    folder = make_task(tmp_path / "task", "")
    task = read_task(folder)
    backend = Fake(handler=rewards("1"))

    spec = Spec(name="s", tasks=(TaskEntry(path=str(folder), agents=("nop",)),))
    executor = TaskExecutor(setting_in(tmp_path, backend), Preparation(spec, tmp_path / "cache").plan)
    trials = [
        PlannedTrial(
            key=str(number) * 64,
            index=number,
            kind="task",
            subject=task.name,
            subject_digest=task.digest,
            body=0,
            agent="nop",
            path=str(folder),
        )
        for number in range(3)
    ]
    for trial in trials:
        executor.expect(trial)
    lease = Lease(run_id="run", key=trials[2].key, index=2, worker="w", fence=1, attempt=1, expires_at=1.0)
    record = await executor.execute(trials[2], lease)
    assert record.outcome is Outcome.PASSED
    assert "start" in record.phases_s
    await executor.close()
    assert len(backend.sandboxes) == 3
    assert all(not sandbox.running for sandbox in backend.sandboxes if hasattr(sandbox, "running"))


class Scarce(Fake):
    """Sandboxes in which something was ended for what it used."""

    def __init__(self, handler, **ledger):
        super().__init__(handler=handler)
        self.ledger = ledger

    def sandbox(self, request):
        made = super().sandbox(request)
        info = made.info
        made.info = lambda: replace(info(), ledger={**info().ledger, **self.ledger})
        return made


@pytest.mark.parametrize(("lacked", "what"), [("host_oom", "memory"), ("host_full", "disk")])
async def test_whom_the_host_has_killed_is_not_judged(tmp_path, lacked, what):
    for number, text in enumerate(["0", None]):
        record = await attempt(tmp_path / str(number), backend=Scarce(rewards(text), **{lacked: True}))
        assert (record.outcome, record.reward) == (Outcome.STARVED, None)
        assert record.failure.type == "Starved"
        assert what in record.failure.message
        assert "host" in record.failure.message


@pytest.mark.parametrize("lacked", ["host_oom", "host_full"])
async def test_who_passed_although_the_host_killed_something_has_passed(tmp_path, lacked):
    record = await attempt(tmp_path, backend=Scarce(rewards("1"), **{lacked: True}))
    assert (record.outcome, record.reward, record.failure) == (Outcome.PASSED, 1.0, None)


@pytest.mark.parametrize(
    ("ledger", "note"),
    [
        ({"oom_kills": 1}, "memory: a process was killed at the task's own limit"),
        ({"oom_kills": 3}, "memory: 3 processes were killed at the task's own limit"),
        ({"storage_exceeded": "limit of 9 bytes exceeded"}, "storage: limit of 9 bytes exceeded"),
    ],
)
async def test_what_was_ended_at_the_task_s_own_limit_is_the_agent_s_and_noted(tmp_path, ledger, note):
    record = await attempt(tmp_path, backend=Scarce(rewards("0"), **ledger))
    assert (record.outcome, record.reward) == (Outcome.FAILED, 0.0)
    assert any(each.startswith(note) for each in record.notes)


async def test_nothing_is_noted_of_limits_that_the_host_lacked(tmp_path):
    ledger = {"oom_kills": 2, "host_oom": True, "storage_exceeded": "disk", "host_full": True}
    record = await attempt(tmp_path, backend=Scarce(rewards("0"), **ledger))
    assert record.outcome is Outcome.STARVED
    assert not any(each.startswith(("memory:", "storage:")) for each in record.notes)
