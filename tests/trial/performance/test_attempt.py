"""Programs measured against a reference, on sandboxes in memory: values are what a handler says they are."""

from __future__ import annotations

import io
import json
import random
import tarfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from proctor.errors import HostError, SandboxError
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.spec import SandboxSpec, Spec, TaskEntry
from proctor.model.trial import Lease
from proctor.sandbox.base import Root, SandboxRequest
from proctor.sandbox.fake import Fake, FakeCommand, FakeResult, FakeSandbox
from proctor.store.blobs import open_blobs
from proctor.tasks.read import read_task
from proctor.trial.collect import Collector
from proctor.trial.task.prepare import Preparation
from proctor.trial.task.setting import TaskSetting
from proctor.trial.task_executor import TaskExecutor

pytestmark = pytest.mark.anyio

TABLE = """[verifier.performance]
command = "measure"
metric = "custom"
reference = "reference"
rounds = 10
target = 3
"""
METRIC = "/logs/verifier/metric.txt"


class KeepingSandbox(FakeSandbox):
    """One that can be saved, and begins with what was."""

    async def start(self) -> None:
        await super().start()
        if self.request.state:
            with tarfile.open(self.request.state) as archive:
                for member in archive.getmembers():
                    stream = archive.extractfile(member)
                    assert stream is not None
                    self.files[f"/{member.name}"] = stream.read()

    async def save_state(self, target: Path, *, max_bytes: int) -> bool:
        if sum(map(len, self.files.values())) > max_bytes:
            return False
        with tarfile.open(target, "w") as archive:
            for path, data in self.files.items():
                member = tarfile.TarInfo(path.lstrip("/"))
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        return True


class Keeping(Fake):
    """Makes them."""

    def sandbox(self, request: SandboxRequest) -> FakeSandbox:
        made = KeepingSandbox(self, request)
        self.sandboxes.append(made)
        return made


Behaviour = Callable[[FakeCommand, str], FakeResult | None]


def world(values: Callable[[str], float], behave: Behaviour = lambda _command, _side: None):
    """What commands do: the oracle writes a program, the tests pass, measuring tells the side's value."""

    def handle(command: FakeCommand) -> FakeResult:
        line, files = command.argv[-1], command.files
        if line.endswith("solve.sh"):
            files["/app/program"] = b"agent"
        elif line == "/tests/test.sh":
            files["/logs/verifier/reward.txt"] = b"1"
        elif line in {"measure", "make inputs", "compare"}:
            side = files.get("/app/program", b"?").decode()
            if (found := behave(command, side)) is not None:
                return found
            if line == "measure":
                files[METRIC] = str(values(side)).encode()
                return FakeResult(stdout=command.env["PROCTOR_SEED"].encode())
        return FakeResult()

    return handle


async def attempt(tmp_path: Path, handler, toml: str = "", kind: type[Fake] = Keeping):
    task_dir = tmp_path / "task"
    for name, text in {
        "task.toml": f"{TABLE}{toml}",
        "instruction.md": "Do it.",
        "tests/test.sh": "",
        "solution/solve.sh": "",
        "reference/program": "reference",
    }.items():
        (task_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (task_dir / name).write_text(text)
    task, backend = read_task(task_dir), kind(handler=handler)

    async def root(task, environment=None):
        return Root(host=True, workdir="/app")

    setting = TaskSetting(
        run_id="run", run_dir=tmp_path / "run", sandbox=SandboxSpec(), backend=backend, make_root=root,
        collector=Collector(tmp_path / "run", open_blobs(tmp_path / "blobs")),
    )  # fmt: skip
    spec = Spec(name="s", tasks=(TaskEntry(path=str(task.path), agents=("oracle",)),))
    trial = PlannedTrial(
        key="k" * 64, index=0, kind="task", subject=task.name, subject_digest=task.digest, body=0,
        agent="oracle", path=str(task.path),
    )  # fmt: skip
    lease = Lease(run_id="run", key=trial.key, index=0, worker="w", fence=1, attempt=1, expires_at=1.0)
    executor = TaskExecutor(setting, Preparation(spec, tmp_path / "cache").plan)
    record = await executor.execute(trial, lease)
    await executor.close()
    return record, backend


def steady(**sides: float) -> Callable[[str], float]:
    drift: Iterator[int] = count()
    return lambda side: sides[side] * (1 + next(drift) % 3 / 1000)


def about(record: AttemptRecord) -> dict:
    return dict(record.metrics["performance"])


async def test_twice_as_good_earns_what_the_target_says_with_an_interval(tmp_path):
    record, _ = await attempt(tmp_path, world(steady(reference=10.0, agent=5.0)))
    found = about(record)
    assert (record.outcome, found["verdict"]) == (Outcome.PARTIAL, "settled")
    assert record.reward == pytest.approx(0.631, abs=0.01)
    assert found["interval"][0] < found["ratio"] < found["interval"][1]
    assert found["reward_interval"][0] <= record.reward <= found["reward_interval"][1]
    assert record.metrics["rewards"]["correctness"] == 1.0
    assert record.metrics["rewards"]["performance"] == record.reward
    assert record.phases_s["measure"] > 0
    (folder,) = (tmp_path / "run").rglob("performance.json")
    rounds = json.loads(folder.read_text())["values"]
    assert len({each["seed"] for each in rounds}) == len(rounds) == found["rounds"]
    assert {each["order"] for each in rounds} == {"rp", "pr"}


@pytest.mark.parametrize(("agent", "reward"), [(10.0, 0.0), (12.0, 0.0), (3.0, 1.0), (0.1, 1.0)])
async def test_no_better_earns_nothing_and_the_target_everything(tmp_path, agent, reward):
    record, _ = await attempt(tmp_path, world(steady(reference=10.0, agent=agent)))
    assert record.reward == reward


async def test_more_is_better_where_the_task_says_so(tmp_path):
    handler = world(steady(reference=10.0, agent=40.0))
    record, _ = await attempt(tmp_path, handler, 'direction = "higher"\n')
    assert (record.reward, about(record)["ratio"]) == (1.0, pytest.approx(4.0, rel=0.01))


async def test_a_noisy_host_does_not_change_the_verdict(tmp_path):
    rng = random.Random(5)

    def busy(side: str) -> float:
        return {"reference": 10.0, "agent": 0.5}[side] * rng.lognormvariate(0, 0.5)

    record, _ = await attempt(tmp_path, world(busy))
    assert (record.outcome, record.reward) == (Outcome.PASSED, 1.0)


async def test_what_noise_leaves_open_is_no_number_and_is_not_tried_again(tmp_path):
    rng = random.Random(5)
    noisy = world(lambda side: {"reference": 10.0, "agent": 6.0}[side] * rng.lognormvariate(0, 0.6))
    record, _ = await attempt(tmp_path, noisy)
    assert (record.outcome, record.reward) == (Outcome.STARVED, None)
    assert record.failure is not None
    assert record.failure.lasting
    assert "'proctor eval' measures again" in record.failure.in_words
    assert (about(record)["verdict"], about(record)["reward"]) == ("inconclusive", None)


async def test_a_program_that_varies_by_itself_gets_what_is_certain(tmp_path):
    rng, quiet = random.Random(5), steady(reference=10.0)

    def erratic(side: str) -> float:
        return quiet(side) if side == "reference" else 5.0 * rng.lognormvariate(0, 0.3)

    record, _ = await attempt(tmp_path, world(erratic))
    found = about(record)
    assert found["verdict"] == "erratic"
    assert record.reward == found["reward_interval"][0] < 0.631
    assert any("varied far more than the reference's" in note for note in record.notes)


async def test_each_execution_has_a_fresh_sandbox_without_network_from_a_saved_state(tmp_path):
    seen: list[tuple[str, bool]] = []

    def cache(command: FakeCommand, side: str) -> FakeResult | None:
        if command.argv[-1] == "measure":
            seen.append((side, "/app/cache" in command.files))
            command.files["/app/cache"] = b"the answer"
        return None

    _, backend = await attempt(tmp_path, world(steady(reference=10.0, agent=1.0), cache))
    assert {side for side, _ in seen} == {"reference", "agent"}
    assert not any(known for _, known in seen)
    measured = [each for each in backend.sandboxes if each.request.state]
    assert len(measured) == len(seen)
    assert {each.request.limits.network for each in measured} == {"none"}
    assert not any(each.running for each in backend.sandboxes)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (FakeResult(stdout=b"42"), "its output is not what the reference's is"),
        (FakeResult(exit_code=3, stderr=b"oh\nno\n"), "exit code 3: no"),
        (FakeResult(takes_s=0.2), "did not end within 0.1 s"),
        (FakeResult(oom_killed=True), "killed at the memory limit"),
    ],
)
async def test_a_program_that_is_wrong_in_a_round_earns_nothing(tmp_path, result, said):
    def wrong(command: FakeCommand, side: str) -> FakeResult | None:
        if command.argv[-1] != "measure" or side != "agent":
            return None
        command.files[METRIC] = b"1"
        return result

    handler = world(steady(reference=10.0, agent=1.0), wrong)
    record, _ = await attempt(tmp_path, handler, "timeout_sec = 0.1\n" if result.takes_s else "")
    assert (record.outcome, record.reward) == (Outcome.FAILED, 0.0)
    assert said in record.failure.message
    assert about(record)["verdict"] == "failed"


async def test_a_number_that_is_none_earns_nothing(tmp_path):
    for at, value in enumerate(("nan", "-1", "many")):

        def forged(side: str, value: str = value) -> float:
            return 10.0 if side == "reference" else value  # type: ignore[return-value]

        record, _ = await attempt(tmp_path / str(at), world(forged))
        assert (record.outcome, record.reward) == (Outcome.FAILED, 0.0)


async def test_a_reference_that_fails_is_the_task_s_fault(tmp_path):
    def broken(command: FakeCommand, side: str) -> FakeResult | None:
        return FakeResult(exit_code=1) if side == "reference" and command.argv[-1] == "measure" else None

    record, _ = await attempt(tmp_path, world(steady(reference=1.0, agent=1.0), broken))
    assert (record.outcome, record.reward) == (Outcome.VERIFIER_ERROR, None)
    assert "the reference cannot be measured" in record.failure.in_words


async def test_inputs_are_made_beside_the_reference_and_given_to_both(tmp_path):
    given: list[tuple[str, bytes | None]] = []

    def inputs(command: FakeCommand, side: str) -> FakeResult | None:
        if command.argv[-1] == "make inputs":
            assert side == "reference"
            command.files["/inputs/data"] = command.env["PROCTOR_SEED"].encode()
        if command.argv[-1] == "measure":
            given.append((command.env["PROCTOR_SEED"], command.files.get("/inputs/data")))
        return None

    handler = world(steady(reference=10.0, agent=1.0), inputs)
    record, _ = await attempt(tmp_path, handler, 'inputs = "make inputs"\n')
    assert record.reward == 1.0
    assert all(seed.encode() == data for seed, data in given)


@pytest.mark.parametrize(
    ("result", "said"), [(FakeResult(), "no plain files"), (FakeResult(exit_code=2), "failed")]
)
async def test_inputs_that_cannot_be_made_are_the_task_s_fault(tmp_path, result, said):
    def broken(command: FakeCommand, side: str) -> FakeResult | None:
        return result if command.argv[-1] == "make inputs" else None

    handler = world(steady(reference=1.0, agent=1.0), broken)
    record, _ = await attempt(tmp_path, handler, 'inputs = "make inputs"\n')
    assert record.outcome is Outcome.VERIFIER_ERROR
    assert said in record.failure.message


def checking(accept: Callable[[bytes, bytes], bool]) -> Behaviour:
    def check(command: FakeCommand, side: str) -> FakeResult | None:
        if command.argv[-1] == "measure" and side == "agent":
            command.files[METRIC] = b"1.0"
            return FakeResult(stdout=b"7")
        if command.argv[-1] == "compare":
            files = command.files
            right = accept(files["/logs/verifier/output"], files["/logs/verifier/expected"])
            return FakeResult(exit_code=not right, stdout=b"" if right else b"no good")
        return None

    return check


async def test_the_author_s_check_decides_about_an_output(tmp_path):
    values = steady(reference=10.0, agent=1.0)
    sane = checking(lambda output, expected: output in {b"7", expected})
    record, _ = await attempt(tmp_path / "a", world(values, sane), 'check = "compare"\n')
    assert record.reward == 1.0
    strict = checking(lambda output, expected: output == expected)
    record, _ = await attempt(tmp_path / "b", world(values, strict), 'check = "compare"\n')
    assert (record.outcome, record.reward) == (Outcome.FAILED, 0.0)
    assert any("no good" in each.read_text() for each in (tmp_path / "b").rglob("eval.log"))


async def test_a_check_that_refuses_the_reference_is_the_task_s_fault(tmp_path):
    never = checking(lambda _output, _expected: False)
    handler = world(steady(reference=10.0, agent=1.0), never)
    record, _ = await attempt(tmp_path, handler, 'check = "compare"\n')
    assert record.outcome is Outcome.VERIFIER_ERROR


async def test_what_the_tests_refuse_is_not_measured(tmp_path):
    inner = world(steady(reference=10.0, agent=1.0))

    def handler(command: FakeCommand) -> FakeResult:
        result = inner(command)
        if command.argv[-1] == "/tests/test.sh":
            command.files["/logs/verifier/reward.txt"] = b"0.5"
        return result

    record, backend = await attempt(tmp_path, handler)
    assert (record.outcome, record.reward) == (Outcome.FAILED, 0.0)
    assert about(record)["verdict"] == "not measured"
    assert record.metrics["rewards"]["correctness"] == 0.5
    assert len(backend.sandboxes) == 1


async def test_how_an_agent_ended_makes_no_number_of_an_open_measurement(tmp_path):
    rng = random.Random(5)
    noisy = world(lambda side: {"reference": 10.0, "agent": 6.0}[side] * rng.lognormvariate(0, 0.6))

    def handler(command: FakeCommand) -> FakeResult:
        found = noisy(command)
        late = command.argv[-1].endswith("solve.sh")
        return FakeResult(takes_s=0.3) if late else found

    record, _ = await attempt(tmp_path, handler, "[agent]\ntimeout_sec = 0.05\n")
    assert (record.outcome, record.reward) == (Outcome.STARVED, None)


async def test_a_sandbox_that_cannot_be_saved_is_refused_before_the_agent_begins(tmp_path):
    record, backend = await attempt(tmp_path, world(steady(reference=1.0, agent=1.0)), kind=Fake)
    assert (record.outcome, record.failure.lasting) == (Outcome.SANDBOX_ERROR, True)
    assert "cannot save what is in it" in record.failure.message
    assert not any(each.argv[-1].endswith("solve.sh") for each in backend.sandboxes[0].commands)


@pytest.mark.parametrize(
    ("error", "outcome"), [(SandboxError("gone"), Outcome.FAILED), (HostError("full"), Outcome.SANDBOX_ERROR)]
)
async def test_a_sandbox_that_the_program_breaks_is_its_own_fault_and_the_host_s_is_not(
    tmp_path, error, outcome
):
    def breaking(command: FakeCommand, side: str) -> FakeResult | None:
        if side == "agent" and command.argv[-1] == "measure":
            raise error
        return None

    record, _ = await attempt(tmp_path, world(steady(reference=10.0, agent=1.0), breaking))
    assert record.outcome is outcome
