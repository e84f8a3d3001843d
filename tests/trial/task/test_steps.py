from __future__ import annotations

from pathlib import Path

import pytest

from proctor.errors import SandboxError, TaskError
from proctor.model.outcome import Outcome
from proctor.model.task import AgentLimits, Healthcheck, Step, VerifierSpec
from proctor.sandbox.base import Root, SandboxRequest
from proctor.sandbox.fake import Fake, FakeCommand, FakeResult
from proctor.trial.task.steps import Place, combine, make_ready, too_low, wait_healthy
from proctor.trial.verify import Verdict

pytestmark = pytest.mark.anyio

PLACE = Place(cwd="/app", env={"A": "1"}, user="worker")


async def started(handler=lambda command: FakeResult()):
    sandbox = Fake(handler=handler).sandbox(SandboxRequest(name="s", root=Root(workdir="/app")))
    await sandbox.start()
    return sandbox


def step(**options) -> Step:
    return Step(name="one", instruction="", agent=AgentLimits(), verifier=VerifierSpec(), **options)


def files(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / name.replace("_", ".")).parent.mkdir(parents=True, exist_ok=True)
        (folder / name.replace("_", ".")).write_text(text)
    return folder


async def test_the_files_of_a_step_are_laid_out_and_its_setup_runs_as_the_agents_user(tmp_path):
    sandbox = await started()
    await make_ready(sandbox, step(workdir=files(tmp_path, setup_sh="true", data_txt="1")), PLACE, first=True)
    assert sandbox.files == {"/app/setup.sh": b"true", "/app/data.txt": b"1"}
    (command,) = sandbox.commands
    assert command.argv == ("/bin/bash", "/app/setup.sh")
    assert (command.user, command.cwd, command.env["A"]) == ("worker", "/app", "1")
    assert sandbox.ended == 0


async def test_what_the_last_verifier_left_is_gone_before_the_next_step_begins(tmp_path):
    sandbox = await started()
    sandbox.files |= {"/tests/test.sh": b"secret", "/logs/verifier/reward.txt": b"1", "/app/mine": b"kept"}
    await make_ready(sandbox, step(), PLACE, first=False)
    assert sandbox.files == {"/app/mine": b"kept"}
    assert sandbox.ended == 1


async def test_a_setup_that_fails_names_its_file_and_what_it_said(tmp_path):
    sandbox = await started(lambda command: FakeResult(exit_code=3, stderr=b"no disk"))
    with pytest.raises(TaskError, match=r"steps/one/workdir/setup.sh ended with exit code 3: 'no disk'"):
        await make_ready(sandbox, step(workdir=files(tmp_path, setup_sh="")), PLACE, first=True)


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
        await wait_healthy(sandbox, check, PLACE)
    else:
        with pytest.raises(SandboxError, match="failed 3 times: true"):
            await wait_healthy(sandbox, check, PLACE)
    assert len(sandbox.commands) == min(failures + 1, retries)


async def test_failures_in_the_start_period_do_not_count():
    sandbox = await started(healthy_after(4))
    times = iter([0.0, 1.0, 2.0, 3.0, 11.0, 12.0])
    check = Healthcheck(command="true", interval_s=0, start_period_s=10, start_interval_s=0, retries=2)
    await wait_healthy(sandbox, check, PLACE, clock=lambda: next(times))
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
