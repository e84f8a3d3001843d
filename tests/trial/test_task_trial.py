"""Every way an attempt at a task can end, on the fake sandbox. The real ones are in tests/integration."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from msgspec import convert

from proctor.agents.base import AgentContext, AgentFailed, AgentResult, AgentTimeout, BudgetExhausted
from proctor.agents.command import Command
from proctor.agents.oracle import Oracle
from proctor.errors import HostError, ImageError, ProviderError
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.spec import SandboxSpec, Spec, TaskEntry
from proctor.model.trial import Lease
from proctor.sandbox.base import Root
from proctor.sandbox.fake import Fake, FakeCommand, FakeResult, FakeSandbox
from proctor.sandbox.image.registry.access import RegistryError
from proctor.store.blobs import open_blobs
from proctor.tasks.read import read_task
from proctor.trial.collect import Collector
from proctor.trial.task.prepare import Preparation
from proctor.trial.task.setting import TaskSetting
from proctor.trial.task_executor import TaskExecutor

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
        if text is not None:
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
        collector=Collector(folder / "run", open_blobs(folder / "blobs")),
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


async def test_the_record_says_which_image_network_and_limits_it_had(tmp_path):
    async def pinned(task, environment=None):
        return Root(workdir="/app", digest="r00t", image_name="ubuntu:24.04", image_digest="sha256:abc")

    record = await attempt(tmp_path, make_root=pinned, toml="[environment]\ncpus = 2\n")
    assert record.image == {"name": "ubuntu:24.04", "digest": "sha256:abc", "host": False, "root": "r00t"}
    limits = record.ledger["limits"]
    assert limits["cpus"] == 2
    assert limits["network"] in {"none", "public"}
    again = convert(json.loads(json.dumps(record.to_mapping())), AttemptRecord)
    assert again.image == record.image


async def test_an_attempt_without_a_root_has_no_image_and_no_duration(tmp_path):
    async def broken(task, environment=None):
        raise ImageError("no such image")

    record = await attempt(tmp_path, make_root=broken)
    assert record.image == {}
    assert "image" not in record.to_mapping()
    assert record.took_s is None


async def test_the_duration_is_the_agents_and_the_verifiers(tmp_path):
    record = await attempt(tmp_path)
    assert record.took_s == record.phases_s["agent"] + record.phases_s["verify"]
    assert record.took_s < record.ended_at - record.started_at + 1


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


@pytest.mark.parametrize(
    ("program", "outcome"), [("/bin/bash", Outcome.VERIFIER_ERROR), ("/bin/sh", Outcome.INVALID)]
)
async def test_an_image_without_a_shell_is_the_tasks_fault_and_said_so(tmp_path, program, outcome):
    def without(command: FakeCommand) -> FakeResult:
        said = f"proctor: cannot run {program}: No such file or directory\n".encode()
        return FakeResult(exit_code=127, stderr=said) if command.argv[0] == program else FakeResult()

    async def elsewhere(task, environment=None):
        return Root(host=True, workdir="/")

    record = await attempt(
        tmp_path, handler=without, toml='[environment]\nworkdir = "/app"\n', make_root=elsewhere
    )
    assert record.outcome is outcome
    assert f"the image has no {program}" in record.failure.message


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
        (AgentTimeout(), "agent_timeout"),
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
    ("error", "outcome"),
    [
        (ProviderError("429"), "provider_error"),
        (HostError("gone"), "sandbox_error"),
        (TimeoutError("the engine did not answer"), "sandbox_error"),
    ],
)
async def test_what_is_not_the_agents_fault_is_not_scored(tmp_path, error, outcome):
    record = await attempt(tmp_path, agent=Scripted(raising(error)))
    assert (record.outcome, record.reward) == (Outcome(outcome), None)


async def test_time_that_the_infrastructure_took_is_not_the_agents_limit(tmp_path):
    class Waits(Scripted):
        async def run(self, task, sandbox, model, context):
            await sandbox.exec(["work"])

    def stalls(command: FakeCommand) -> FakeResult:
        if command.argv == ("work",):
            raise TimeoutError("no answer from the keeper")
        return rewards("0")(command)

    record = await attempt(tmp_path, agent=Waits(), handler=stalls)
    assert (record.outcome, record.reward) == (Outcome.SANDBOX_ERROR, None)
    said = "no answer from the keeper; the agent's own limit of 600 s was not reached"
    assert record.failure.message == said


async def test_a_command_that_the_sandbox_does_not_end_is_infrastructure(tmp_path, monkeypatch):
    class Stalled(FakeSandbox):
        async def exec(self, argv, **options):
            if "work" in argv[-1].splitlines():
                await asyncio.Event().wait()
            return await super().exec(argv, **options)

    class Backend(Fake):
        def sandbox(self, request):
            self.sandboxes.append(Stalled(self, request))
            return self.sandboxes[-1]

    monkeypatch.setattr("proctor.trial.task.agent._GRACE_S", 0.05)
    toml = "[agent]\ntimeout_sec = 0.05\n"
    record = await attempt(tmp_path, agent=Command(command="work"), backend=Backend(rewards("1")), toml=toml)
    assert (record.outcome, record.reward) == (Outcome.SANDBOX_ERROR, None)
    assert "did not end the agent within 0.05 s of its limit" in record.failure.message


@pytest.mark.parametrize("reward", ["0", "1"])
async def test_an_agent_that_ran_out_of_time_keeps_its_trajectory(tmp_path, reward):
    def slow(command: FakeCommand) -> FakeResult:
        if "work" in command.argv[-1].splitlines():
            return FakeResult(stdout=b"so far\n", takes_s=3600)
        return rewards(reward)(command)

    toml = "[agent]\ntimeout_sec = 0.05\n"
    record = await attempt(tmp_path, agent=Command(command="work"), handler=slow, toml=toml)
    assert (record.outcome, record.reward) == (Outcome.AGENT_TIMEOUT, float(reward))
    assert record.failure.message == "the agent did not end within 0.05 s"
    (trajectory,) = tmp_path.rglob("trajectory.json")
    *_, step = json.loads(trajectory.read_text())["steps"]
    assert step["observation"]["results"][0]["content"] == "so far\n"


async def test_a_sandbox_that_does_not_start_is_infrastructure(tmp_path):
    record = await attempt(tmp_path, backend=Fake(fail_start=1))
    assert record.outcome is Outcome.SANDBOX_ERROR
    assert record.failure.phase == "start"


async def test_an_image_that_cannot_be_made_is_infrastructure(tmp_path):
    async def root(task, environment=None):
        raise ImageError("Dockerfile:3: RUN false")

    record = await attempt(tmp_path, make_root=root)
    assert (record.outcome, record.failure.phase) == (Outcome.IMAGE_ERROR, "image")
    assert not record.failure.lasting, "a build may do better the next time"


async def test_an_image_that_does_not_exist_is_not_asked_for_again(tmp_path):
    async def root(task, environment=None):
        refused = RegistryError("no image of that name and tag", status=404)
        raise ImageError(f"a:b cannot be pulled: {refused}") from refused

    record = await attempt(tmp_path, make_root=root)
    assert record.outcome is Outcome.IMAGE_ERROR
    assert record.failure.lasting
    assert record.failure.in_words == "a:b cannot be pulled: no image of that name and tag"


async def test_a_task_without_a_solution_is_not_the_oracles_failure(tmp_path):
    record = await attempt(tmp_path, agent=Oracle())
    assert (record.outcome, record.reward) == (Outcome.INVALID, None)
    assert "no solution/solve.sh" in record.failure.message


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
    assert record.reward == 0.5  # the mean of the steps that were judged
    assert len(agent.seen) == 1


STEPS = '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n'
STEP_FILES = {"steps/one/instruction.md": "First.", "steps/two/instruction.md": "Second."}


async def test_shared_tests_are_laid_out_below_the_steps_own_and_gone_before_the_next_agent(tmp_path):
    seen: list[dict[str, str]] = []
    backend = Fake()

    def judged(command: FakeCommand) -> FakeResult:
        if "/tests/test.sh" in command.argv[-1]:
            seen.append({name: data.decode() for name, data in command.files.items() if "/tests/" in name})
            command.files["/logs/verifier/reward.txt"] = b"1"
        return FakeResult()

    def act(context: AgentContext) -> None:
        assert not any(name.startswith(("/tests", "/logs/verifier")) for name in backend.sandboxes[0].files)

    backend.handler = judged
    files = {
        **STEP_FILES,
        "tests/test.sh": "shared",
        "tests/helper.sh": "help",
        "steps/two/tests/test.sh": "own",
    }
    record = await attempt(tmp_path, backend=backend, agent=Scripted(act=act), toml=STEPS, files=files)
    assert record.outcome is Outcome.PASSED
    assert seen == [
        {"/tests/test.sh": "shared", "/tests/helper.sh": "help"},
        {"/tests/test.sh": "own", "/tests/helper.sh": "help"},
    ]


async def test_a_later_step_that_cannot_begin_counts_as_zero_and_is_noted(tmp_path):
    def handle(command: FakeCommand) -> FakeResult:
        command.files["/logs/verifier/reward.txt"] = b"1"
        return FakeResult(exit_code=int("/app/setup.sh" in command.argv[-1]))

    files = {**STEP_FILES, "steps/two/workdir/setup.sh": "false"}
    record = await attempt(tmp_path, toml=STEPS, files=files, handler=handle)
    assert (record.outcome, record.reward) == (Outcome.PARTIAL, 0.5)
    assert any("step 'two' could not begin" in note for note in record.notes)


async def test_a_first_step_that_cannot_begin_is_the_authors_fault(tmp_path):
    files = {**STEP_FILES, "steps/one/workdir/setup.sh": "false"}
    record = await attempt(tmp_path, toml=STEPS, files=files, handler=lambda command: FakeResult(exit_code=1))
    assert record.outcome is Outcome.INVALID
    assert "setup.sh ended with exit code 1" in record.failure.message


async def test_the_next_step_is_tried_after_an_agent_that_ended_badly(tmp_path):
    def act(context: AgentContext) -> None:
        if context.step == "one":
            raise AgentFailed("it broke")

    agent = Scripted(act=act)
    record = await attempt(tmp_path, agent=agent, toml=STEPS, files=STEP_FILES, handler=rewards("0", "1"))
    assert len(agent.seen) == 2
    assert (record.outcome, record.reward) == (Outcome.AGENT_ERROR, 0.5)


async def test_a_minimum_of_one_part_of_the_reward_ends_the_task(tmp_path):
    toml = '[[steps]]\nname = "one"\nmin_reward = { speed = 2 }\n[[steps]]\nname = "two"\n'
    agent = Scripted()
    handler = rewards('{"reward": 0.5, "speed": 1}', name="reward.json")
    record = await attempt(tmp_path, agent=agent, toml=toml, files=STEP_FILES, handler=handler)
    assert len(agent.seen) == 1
    assert record.metrics["rewards"] == {"reward": 0.5, "speed": 1.0}


async def test_artifacts_and_hooks_come_before_the_tests_and_are_kept(tmp_path):
    def handle(command: FakeCommand) -> FakeResult:
        if command.argv[-1] == "dump":
            command.files["/data/dump.txt"] = b"dumped"
        if "/tests/test.sh" in command.argv[-1]:
            command.files |= {"/logs/verifier/reward.txt": b"1", "/data/dump.txt": b"by the tests"}
        return FakeResult()

    toml = (
        'artifacts = ["/data/dump.txt", { source = "own.txt", destination = "x/y.txt" }]\n'
        '[[verifier.collect]]\ncommand = "dump"\n[[verifier.collect]]\ncommand = "gone"\nservice = "main"\n'
    )
    backend = Fake(handler=handle)

    def act(context: AgentContext) -> None:
        backend.sandboxes[0].files |= {"/app/own.txt": b"mine", "/logs/artifacts/log.txt": b"published"}

    record = await attempt(tmp_path, backend=backend, agent=Scripted(act=act), toml=toml)
    folder = tmp_path / "run"
    kept = {each.name for each in record.artifacts if each.name.startswith("artifacts/files")}
    assert kept == {
        "artifacts/files/data/dump.txt", "artifacts/files/x/y.txt", "artifacts/files/logs/artifacts/log.txt"
    }  # fmt: skip
    (dumped,) = folder.rglob("dump.txt")
    assert dumped.read_bytes() == b"dumped"


async def test_the_artifacts_of_a_step_are_kept_by_its_name(tmp_path):
    toml = 'artifacts = ["/app/a"]\n' + STEPS + 'artifacts = ["/app/b"]\n'
    backend = Fake(handler=rewards("1"))

    def act(context: AgentContext) -> None:
        backend.sandboxes[0].files |= {"/app/a": context.step.encode(), "/app/b": b"b"}

    record = await attempt(tmp_path, backend=backend, agent=Scripted(act=act), toml=toml, files=STEP_FILES)
    kept = sorted(each.name for each in record.artifacts if each.name.startswith("artifacts/steps"))
    assert kept == [
        "artifacts/steps/one/app/a", "artifacts/steps/two/app/a", "artifacts/steps/two/app/b"
    ]  # fmt: skip


SEPARATE = 'artifacts = ["out.txt"]\n[verifier]\nenvironment_mode = "separate"\n'


async def test_a_separate_verifier_gets_the_artifacts_and_nothing_else_of_the_agent(tmp_path):
    backend = Fake(handler=rewards("1"))

    def act(context: AgentContext) -> None:
        backend.sandboxes[0].files |= {
            "/app/out.txt": b"1",
            "/app/cheat.py": b"2",
            "/logs/artifacts/log": b"3",
        }

    record = await attempt(tmp_path, backend=backend, agent=Scripted(act=act), toml=SEPARATE)
    assert record.outcome is Outcome.PASSED
    agents, judges = backend.sandboxes
    assert set(judges.files) == {
        "/app/out.txt", "/logs/artifacts/log", "/tests/test.sh", "/logs/verifier/reward.txt"
    }  # fmt: skip
    assert "/tests/test.sh" not in agents.files


async def test_a_verifier_image_that_holds_the_tests_keeps_its_own(tmp_path):
    toml = (
        '[verifier]\nenv = { B = "2" }\n[verifier.environment]\ndocker_image = "judge:1"\n'
        'env = { A = "1" }\nworkdir = "/judge"\n'
    )
    made = []

    async def make_root(task, environment=None):
        made.append(environment and environment.image)
        return Root(host=True, workdir="/app")

    backend = Fake(handler=rewards("1"))
    record = await attempt(tmp_path, backend=backend, toml=toml, make_root=make_root)
    assert record.outcome is Outcome.PASSED
    assert made == [None, "judge:1"]
    judges = backend.sandboxes[1]
    assert "/tests/test.sh" not in judges.files
    test = judges.commands[-1]
    assert (test.cwd, test.env["A"], test.env["B"]) == ("/judge", "1", "2")


async def test_what_a_task_offers_reaches_its_agent_and_the_solutions_variables_only_the_oracle(tmp_path):
    toml = (
        '[environment]\nskills_dir = "/skills"\n[[environment.mcp_servers]]\nname = "m"\nurl = "http://m"\n'
        '[solution]\nenv = { KEY = "${NOT_SET}" }\n'
    )
    agent = Scripted()
    await attempt(tmp_path, agent=agent, toml=toml, files={"trajectory.json": "{}"})
    (context,) = agent.seen
    assert (context.skills_dir, context.mcp_servers[0].name) == ("/skills", "m")
    assert context.prior == tmp_path / "task/trajectory.json"
    assert context.solution_env == {}
    oracle = Scripted(name="oracle")
    record = await attempt(tmp_path, agent=oracle, toml=toml)
    assert record.outcome is Outcome.INVALID
    await attempt(tmp_path, agent=oracle, toml=toml, given={"NOT_SET": "now"})
    assert oracle.seen[-1].solution_env == {"KEY": "now"}


async def test_the_files_of_a_ready_image_without_a_dockerfile_are_laid_into_the_working_folder(tmp_path):
    backend = Fake(handler=rewards("1"))
    toml = '[environment]\ndocker_image = "a:1"\n'
    files = {"environment/data.txt": "1", "environment/Dockerfile": None}
    await attempt(tmp_path, backend=backend, toml=toml, files=files)
    assert backend.sandboxes[0].files["/app/data.txt"] == b"1"


async def test_files_of_services_need_a_sandbox_with_services(tmp_path):
    toml = 'artifacts = [{ source = "/dump", service = "db" }]\n'
    record = await attempt(tmp_path, toml=toml, files={"environment/docker-compose.yaml": "services: {}\n"})
    assert record.outcome is Outcome.SANDBOX_ERROR
    assert "use the podman or docker back end" in record.failure.message


async def test_a_value_that_only_contains_a_reference_is_left_as_it_is(tmp_path):
    toml = '[environment]\nenv = { A = "x${HOME}", B = "${C:-{\\"d\\": 1}}", E = "${F}" }\n'
    backend = Fake(handler=rewards("1"))
    await attempt(tmp_path, backend=backend, toml=toml, given={"F": ""})
    env = backend.sandboxes[0].request.env
    assert (env["A"], env["B"], env["E"]) == ("x${HOME}", '{"d": 1}', "")


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
    assert len(backend.sandboxes) == 2  # of three that were expected, the oldest was given up at once
    assert all(not sandbox.running for sandbox in backend.sandboxes if hasattr(sandbox, "running"))


async def test_the_end_of_a_run_does_not_wait_for_a_build_that_no_trial_needs(tmp_path):
    folder = make_task(tmp_path / "t", '[environment.env]\nKEY = "${NOT_SET_ANYWHERE}"\n')
    asked, ended = [], []

    async def make_root(task, environment=None):
        asked.append(task.name)
        return Root()

    async def end_builds():
        ended.append(True)

    spec = Spec(name="s", tasks=(TaskEntry(path=str(folder), agents=("nop",)),))
    setting = replace(setting_in(tmp_path, Fake()), make_root=make_root, end_builds=end_builds, given={})
    executor = TaskExecutor(setting, Preparation(spec, tmp_path / "cache").plan)
    executor.expect(
        PlannedTrial(
            key="k",
            index=0,
            kind="task",
            subject="t",
            subject_digest="d",
            body=0,
            agent="nop",
            path=str(folder),
        )
    )
    await asyncio.sleep(0)
    await executor.close()
    assert (asked, ended) == ([], [True])


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


async def test_whose_network_was_lost_is_not_judged_unless_it_passed(tmp_path):
    lost = {"network_lost": "slirp4netns ended"}
    record = await attempt(tmp_path / "0", backend=Scarce(rewards("0"), **lost))
    assert (record.outcome, record.reward) == (Outcome.SANDBOX_ERROR, None)
    assert record.failure.message == "the network was lost: slirp4netns ended"
    passed = await attempt(tmp_path / "1", backend=Scarce(rewards("1"), **lost))
    assert (passed.outcome, passed.reward, passed.failure) == (Outcome.PASSED, 1.0, None)


async def test_whom_the_host_has_killed_for_its_own_use_is_judged_as_it_is(tmp_path):
    hog = {"oom_kills": 1, "host_oom": True, "peak_memory_bytes": 9 << 30, "memory_free_bytes": 16 << 30}
    record = await attempt(tmp_path / "hog", backend=Scarce(rewards("0"), **hog))
    assert (record.outcome, record.reward) == (Outcome.FAILED, 0.0)
    assert any("itself had used 9216 MB of the 16384 MB" in note for note in record.notes)
    victim = {**hog, "peak_memory_bytes": 7 << 30}
    record = await attempt(tmp_path / "victim", backend=Scarce(rewards("0"), **victim))
    assert (record.outcome, record.reward) == (Outcome.STARVED, None)


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
