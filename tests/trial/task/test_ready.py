"""The entrypoint of an image runs beside the agent, and whatever it does, the attempt goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from proctor.errors import SandboxError, TaskError
from proctor.model.outcome import Outcome
from proctor.model.task import AgentLimits, Healthcheck, Step, VerifierSpec
from proctor.sandbox.base import Root, SandboxRequest
from proctor.sandbox.bubblewrap import Bubblewrap
from proctor.sandbox.fake import Fake, FakeCommand, FakeResult
from proctor.trial.task import ready
from proctor.trial.task.ready import Entrypoint, make_ready, starts_something, wait_healthy
from proctor.trial.verify import Verdict, combine, too_low


@pytest.fixture
async def sandbox(tmp_path, anyio_backend):
    backend = Bubblewrap(tmp_path / "home", cache_dir=tmp_path / "cache")
    made = backend.sandbox(SandboxRequest(name="t", root=Root(host=True, workdir="/app")))
    await made.start()
    yield made
    await backend.close()


async def begun(sandbox, *argv: str, checked: bool = True) -> tuple[list[str], bytes, bytes]:
    """Its notes, its log, and what is left of it inside when the agent would begin."""
    logged: list[bytes] = []
    started = Entrypoint(lambda _, data: logged.append(data))
    root = Root(host=True, workdir="/app", entrypoint=argv)
    notes = await started.start(sandbox, root, checked=checked)
    left = await sandbox.exec(["/bin/sh", "-c", "cat /app/prepared; pgrep -a sleep"])
    await started.stop()
    await started.stop()
    return notes, b"".join(logged), left.stdout


async def test_the_agent_begins_when_the_entrypoint_has_prepared_everything(sandbox):
    script = 'echo hello; echo yes > /app/prepared; exec "$@"'
    notes, log, left = await begun(sandbox, "/bin/sh", "-c", script, "entrypoint")
    assert notes == []
    assert log.startswith(b"hello\n")
    assert left.startswith(b"yes\n")
    assert b"sleep infinity" in left


async def test_programs_in_its_background_stay_and_get_a_moment(sandbox, monkeypatch):
    monkeypatch.setattr(ready, "_SETTLE_S", 0.01)
    script = 'sleep 1000 & exec "$@"'
    notes, log, left = await begun(sandbox, "/bin/sh", "-c", script, "entrypoint", checked=False)
    assert notes == []
    assert b"nothing" not in log
    assert b"sleep 1000" in left


async def test_one_that_never_starts_its_command_goes_on_beside_the_agent(sandbox, monkeypatch):
    monkeypatch.setattr(ready, "_REACH_S", 0.05)
    notes, log, left = await begun(sandbox, "/bin/sh", "-c", "sleep 2000")
    assert (notes, log) == ([], b"")
    assert b"sleep 2000" in left


async def test_one_that_ends_is_noted_and_no_error(sandbox):
    notes, log, _ = await begun(sandbox, "/bin/sh", "-c", "echo no luck; exit 7")
    assert notes == [
        "the image's ENTRYPOINT ended with exit code 7 before the agent began; see entrypoint.log"
    ]
    assert log == b"no luck\n"


async def test_one_that_is_not_there_is_noted(sandbox):
    notes, _, _ = await begun(sandbox, "/no/such/program")
    assert "ended with exit code 127" in notes[0]


async def test_an_image_without_one_starts_nothing(sandbox):
    assert (await begun(sandbox))[2] == b""


@pytest.mark.parametrize(
    ("argv", "starts"),
    [
        ((), False),
        (("/bin/bash",), False),
        (("sh", "-c"), False),
        (("/bin/sh", "-c", "x"), True),
        (("/e",), True),
    ],
)
def test_a_bare_shell_starts_nothing(argv, starts):
    assert starts_something(argv) is starts


pytestmark = pytest.mark.anyio

PLACE = {"cwd": "/app", "env": {"A": "1"}}


async def started(handler=lambda command: FakeResult()):
    sandbox = Fake(handler=handler).sandbox(SandboxRequest(name="s", root=Root(workdir="/app")))
    await sandbox.start()
    return sandbox


def step(**options) -> Step:
    return Step(
        name="one", instruction="", agent=AgentLimits(user="worker"), verifier=VerifierSpec(), **options
    )


def files(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / name.replace("_", ".")).parent.mkdir(parents=True, exist_ok=True)
        (folder / name.replace("_", ".")).write_text(text)
    return folder


async def test_the_files_of_a_step_are_laid_out_and_its_setup_runs_as_the_agents_user(tmp_path):
    sandbox = await started()
    await make_ready(
        sandbox, step(workdir=files(tmp_path, setup_sh="true", data_txt="1")), **PLACE, first=True
    )
    assert sandbox.files == {"/app/setup.sh": b"true", "/app/data.txt": b"1"}
    (command,) = sandbox.commands
    assert command.argv == ("/bin/bash", "/app/setup.sh")
    assert (command.user, command.cwd, command.env["A"]) == ("worker", "/app", "1")
    assert sandbox.ended == 0


async def test_what_the_last_verifier_left_is_gone_before_the_next_step_begins(tmp_path):
    sandbox = await started()
    sandbox.files |= {"/tests/test.sh": b"secret", "/logs/verifier/reward.txt": b"1", "/app/mine": b"kept"}
    await make_ready(sandbox, step(), **PLACE, first=False)
    assert sandbox.files == {"/app/mine": b"kept"}
    assert sandbox.ended == 1


async def test_a_setup_that_fails_names_its_file_and_what_it_said(tmp_path):
    sandbox = await started(lambda command: FakeResult(exit_code=3, stderr=b"no disk"))
    with pytest.raises(TaskError, match=r"steps/one/workdir/setup.sh ended with exit code 3: 'no disk'"):
        await make_ready(sandbox, step(workdir=files(tmp_path, setup_sh="")), **PLACE, first=True)


def healthy_after(failures: int):
    left = [failures]

    def handle(command: FakeCommand) -> FakeResult:
        left[0] -= 1
        return FakeResult(exit_code=int(left[0] >= 0))

    return handle


@pytest.mark.parametrize(("failures", "retries", "healthy"), [(0, 1, True), (2, 3, True), (3, 3, False)])
async def test_a_health_check_may_fail_less_often_than_its_retries(failures, retries, healthy):
    sandbox = await started(healthy_after(failures))
    check = Healthcheck(command="true", interval_s=0, retries=retries)
    if healthy:
        await wait_healthy(sandbox, check, **PLACE)
    else:
        with pytest.raises(SandboxError, match="failed 3 times: true"):
            await wait_healthy(sandbox, check, **PLACE)
    assert len(sandbox.commands) == min(failures + 1, retries)


async def test_failures_in_the_start_period_do_not_count():
    sandbox = await started(healthy_after(4))
    times = iter([0.0, 1.0, 2.0, 3.0, 11.0, 12.0])
    check = Healthcheck(command="true", interval_s=0, start_period_s=10, start_interval_s=0, retries=2)
    await wait_healthy(sandbox, check, **PLACE, clock=lambda: next(times))
    assert len(sandbox.commands) == 5


def verdict(value: float | None, /, **parts: float) -> Verdict:
    return Verdict(outcome=Outcome.PARTIAL, reward=value, parts=parts)


@pytest.mark.parametrize(
    ("minimum", "found", "low"),
    [
        ({}, verdict(0.0), False),
        ({"reward": 0.5}, verdict(0.5), False),
        ({"reward": 0.5}, verdict(0.4), True),
        ({"speed": 2}, verdict(1.0, speed=3), False),
        ({"speed": 2}, verdict(1.0, speed=1), True),
        ({"speed": 2}, verdict(1.0), True),
        ({"reward": 0.1, "speed": 2}, verdict(0.1, speed=1), True),
        ({"reward": 0.1}, verdict(None), True),
    ],
)
def test_a_step_is_too_low_when_any_part_with_a_minimum_is(minimum, found, low):
    assert too_low(minimum, found) is low


def test_the_mean_is_taken_part_by_part_and_a_missing_part_is_zero():
    combined = combine("mean", [verdict(1.0, reward=1.0, speed=4), verdict(0.5, reward=0.5)])
    assert (combined.reward, dict(combined.parts)) == (0.75, {"reward": 0.75, "speed": 2.0})
    assert combined.outcome is Outcome.PARTIAL


def test_the_last_step_that_was_judged_is_final_and_a_lost_one_is_zero():
    assert combine("final", [verdict(0.0), verdict(1.0)]).reward == 1.0
    assert combine("final", [verdict(1.0)], lost=1).reward == 0.0
    assert combine("mean", [verdict(1.0)], lost=3).reward == 0.25


async def test_who_is_cancelled_while_an_entrypoint_ends_does_not_go_on(anyio_backend):
    """An attempt that went on would ask a judge, and pay for it."""
    began, ending, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Slow:
        async def exec(self, *_: object, **__: object) -> None:
            try:
                began.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ending.set()
                await may_end.wait()
                raise

    started = Entrypoint(lambda *_: None)
    root = Root(host=True, workdir="/app", entrypoint=("serve",))
    starting = asyncio.create_task(started.start(Slow(), root, checked=True))
    await began.wait()
    started._reached.set()
    await starting
    went_on: list[str] = []

    async def attempt() -> None:
        await started.stop()
        went_on.append("to the judge")

    working = asyncio.create_task(attempt())
    await ending.wait()
    working.cancel()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert went_on == []
