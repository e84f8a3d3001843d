"""Which network each phase has, and the change from one to the next, on the fake and on real sandboxes."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.trial.test_task_trial import Scripted, attempt, rewards

from proctor.agents.base import AgentResult
from proctor.errors import SandboxError
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.spec import SandboxSpec
from proctor.model.task import AgentLimits, Step, Task, TaskEnvironment, VerifierSpec
from proctor.sandbox.base import Limits, Root, SandboxRequest
from proctor.sandbox.bubblewrap import Bubblewrap
from proctor.sandbox.fake import Fake
from proctor.sandbox.probe import ADDRESS, an_outside
from proctor.trial.task import sandboxes
from proctor.trial.task.sandboxes import NextSandbox, Policy

pytestmark = pytest.mark.anyio


def made(tmp_path, *, environment=None, agent=None, verifier=None, steps=()) -> Task:
    return Task(
        name="t",
        path=tmp_path,
        digest="d",
        environment=environment or TaskEnvironment(),
        agent=agent or AgentLimits(),
        verifier=verifier or VerifierSpec(),
        steps=steps,
    )


def policies(task: Task, **spec) -> list[Policy]:
    chosen = SandboxSpec(**spec)
    return [
        sandboxes.whole(task.environment, chosen),
        sandboxes.for_agent(task, chosen),
        sandboxes.for_verifier(task, chosen),
    ]


async def test_phases_have_the_environment_s_network_unless_they_have_their_own(tmp_path):
    assert policies(made(tmp_path)) == [Policy("public")] * 3
    task = made(
        tmp_path,
        environment=TaskEnvironment(network="none"),
        verifier=VerifierSpec(network="allowlist", allowed_hosts=("a.example",)),
    )
    assert policies(task) == [Policy("none"), Policy("none"), Policy("allowlist", ("a.example",))]


async def test_the_spec_is_over_every_phase(tmp_path):
    task = made(
        tmp_path,
        environment=TaskEnvironment(network="allowlist", allowed_hosts=("a.example",)),
        agent=AgentLimits(network="none"),
    )
    assert policies(task, network="public") == [Policy("public")] * 3
    assert policies(task, network="none") == [Policy("none")] * 3
    own, given = Policy("allowlist", ("a.example",)), Policy("allowlist", ("b.example",))
    assert policies(task, network="allowlist") == [own, Policy("allowlist"), own]
    assert policies(task, network="allowlist", allowed_hosts=("b.example",)) == [given] * 3
    assert policies(task, allowed_hosts=("b.example",)) == [given, Policy("none"), given]


async def test_a_separate_verifier_has_the_network_of_its_own_environment(tmp_path):
    own = TaskEnvironment(network="none")
    task = made(tmp_path, verifier=VerifierSpec(separate=True, environment=own))
    assert policies(task) == [Policy("public"), Policy("public"), Policy("none")]
    shared = made(tmp_path, verifier=VerifierSpec(separate=False, environment=own))
    assert policies(shared)[-1] == Policy("public")


async def test_a_task_is_without_network_when_every_phase_is(tmp_path):
    none = TaskEnvironment(network="none")
    step = Step(name="s", instruction="", agent=AgentLimits(), verifier=VerifierSpec(network="public"))
    assert not sandboxes.is_used(made(tmp_path, environment=none), SandboxSpec())
    assert sandboxes.is_used(made(tmp_path, environment=none, steps=(step,)), SandboxSpec())
    assert not sandboxes.is_used(made(tmp_path, environment=none, steps=(step,)), SandboxSpec(network="none"))


TOML = """
[environment]
network_mode = "no-network"
[verifier]
network_mode = "public"
"""


async def test_the_network_of_the_tests_is_tried_before_the_agent_begins_and_had_after_it_ended(tmp_path):
    backend = Fake(handler=rewards("1"))
    seen: list[list] = []
    agent = Scripted(act=lambda context: seen.append(list(backend.sandboxes[0].networks)))
    record = await attempt(tmp_path, toml=TOML, backend=backend, agent=agent)
    assert record.outcome is Outcome.PASSED
    assert seen == [[("public", ()), ("none", ())]]
    assert backend.sandboxes[0].networks == [("public", ()), ("none", ()), ("public", ())]


async def test_a_task_with_one_network_changes_nothing(tmp_path):
    backend = Fake(handler=rewards("1"))
    await attempt(tmp_path, backend=backend)
    assert backend.sandboxes[0].request.limits.network == "public"
    assert backend.sandboxes[0].networks == []


async def test_each_step_has_its_own(tmp_path):
    backend = Fake(handler=rewards("1"))
    files = {f"steps/{name}/{each}": "x" for name in "ab" for each in ("instruction.md", "tests/test.sh")}
    toml = """
    [environment]
    network_mode = "no-network"
    [[steps]]
    name = "a"
    [[steps]]
    name = "b"
    [steps.agent]
    network_mode = "public"
    """
    record = await attempt(tmp_path, backend=backend, toml=toml, files=files)
    assert record.outcome is Outcome.PASSED
    tried, *then = backend.sandboxes[0].networks
    assert tried == ("public", ())
    assert then == [("none", ()), ("public", ()), ("none", ())]


async def test_a_sandbox_that_cannot_change_ends_the_attempt_before_the_agent(tmp_path):
    agent = Scripted()
    record = await attempt(tmp_path, toml=TOML, backend=Rigid(), agent=agent)
    assert record.outcome is Outcome.SANDBOX_ERROR
    assert "cannot be changed while it runs" in record.failure.message
    assert agent.seen == []


class Rigid(Fake):
    """A back end whose sandboxes keep the network they began with."""

    def sandbox(self, request):
        inner = super().sandbox(request)

        class Without:
            start, exec, upload, download = inner.start, inner.exec, inner.upload, inner.download
            stop, info, end_processes = inner.stop, inner.info, inner.end_processes

        self.sandboxes.clear()
        return Without()


@pytest.mark.needs("bubblewrap")
async def test_a_public_network_that_does_not_come_up_ends_the_attempt_before_the_agent(
    tmp_path, monkeypatch
):
    from proctor.sandbox import network as sandbox_network

    monkeypatch.setattr(sandbox_network.shutil, "which", lambda name: None)
    backend = Bubblewrap(tmp_path / "home")
    agent = Scripted()
    record = await attempt(tmp_path, backend=_Listed(backend), agent=agent)
    await backend.close()
    assert record.outcome is Outcome.SANDBOX_ERROR
    assert "install the package slirp4netns" in record.failure.message
    assert agent.seen == []


class _Listed:
    """A real back end where `attempt` expects a fake one."""

    def __init__(self, inner):
        self.inner, self.name, self.sandboxes = inner, inner.name, []
        self.sandbox, self.reap, self.close = inner.sandbox, inner.reap, inner.close


class Connecting:
    """An agent that tries to connect, and leaves a process that goes on trying."""

    name, version = "connecting", "1"
    _TRY = f"exec 3<>/dev/tcp/{ADDRESS}/80 && printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3 && grep proctor <&3"

    def __init__(self):
        self.reached = None

    async def run(self, task, sandbox, model, context):
        result = await sandbox.exec(["bash", "-c", self._TRY], timeout_s=20)
        self.reached = b"proctor" in result.stdout
        loop = f"(while ! ({self._TRY}); do sleep 0.01; done; touch /app/reached) >/dev/null 2>&1 &"
        await sandbox.exec(["bash", "-c", loop], timeout_s=20)
        return AgentResult()


@pytest.mark.needs("bubblewrap", "slirp4netns")
@pytest.mark.parametrize("tests_have_it", [True, False])
async def test_agent_and_tests_of_one_sandbox_have_different_networks(tmp_path, tests_have_it):
    modes = ("no-network", "public") if tests_have_it else ("public", "no-network")
    toml = f'[agent]\nnetwork_mode = "{modes[0]}"\n[verifier]\nnetwork_mode = "{modes[1]}"\n'
    script = (
        f"({Connecting._TRY}) && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n"
    )
    if tests_have_it:
        script += "[ ! -e /app/reached ] || echo 0.5 > /logs/verifier/reward.txt\n"
    backend = Bubblewrap(tmp_path / "home")
    agent = Connecting()

    async def root(task, environment=None):
        return Root(host=True, workdir="/app")

    async with an_outside(backend):
        files = {"tests/test.sh": f"#!/bin/bash\n{script}"}
        record = await attempt(
            tmp_path, backend=_Open(backend), agent=agent, toml=toml, files=files, make_root=root
        )
    await backend.close()
    assert agent.reached is not tests_have_it
    assert (record.failure, record.reward) == (None, float(tests_have_it))


class _Open(_Listed):
    """The same, left open by the executor."""

    def __init__(self, inner):
        super().__init__(inner)
        self.close = self._nothing

    async def _nothing(self):
        pass


class Place:
    """A sandbox that knows whether it was stopped."""

    def __init__(self) -> None:
        self.alive = True
        self.stopped = False

    async def stop(self) -> None:
        self.stopped = True


class Starter:
    """Starts a place per trial, when it is let."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.go.set()
        self.made: dict[str, Place] = {}
        self.error: Exception | None = None

    async def __call__(self, trial: PlannedTrial):
        await self.go.wait()
        if self.error:
            raise self.error
        self.made[trial.key] = Place()
        return request(trial.key, "next"), self.made[trial.key]


def trial(key: str) -> PlannedTrial:
    return PlannedTrial(key=key, index=0, kind="task", subject="t", subject_digest="", body=0)


def request(key: str, suffix: str = "1-1") -> SandboxRequest:
    return SandboxRequest(name=f"run-{suffix}", root=Root(host=True), labels={"trial": key})


async def taking_early(start: Starter) -> tuple[NextSandbox, asyncio.Task]:
    """Somebody who waits for a sandbox that is still being started."""
    start.go.clear()
    ahead = NextSandbox(start)
    ahead.start_for(trial("a"))
    taking = asyncio.create_task(ahead.take("a", request("a")))
    await settle()
    return ahead, taking


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_was_expected_is_taken_once():
    start = Starter()
    ahead = NextSandbox(start)
    ahead.start_for(trial("a"))
    ahead.start_for(trial("a"))
    assert await ahead.take("a", request("a")) is start.made["a"]
    assert await ahead.take("a", request("a")) is None
    await ahead.close()
    assert not start.made["a"].stopped


async def test_nobody_gets_what_was_made_for_another():
    start = Starter()
    ahead = NextSandbox(start)
    ahead.start_for(trial("a"))
    await settle()
    assert await ahead.take("b", request("b")) is None
    await ahead.close()
    assert start.made["a"].stopped


async def test_a_request_that_differs_in_more_than_its_name_gets_its_own():
    start = Starter()
    ahead = NextSandbox(start)
    ahead.start_for(trial("a"))
    other = replace(request("a"), limits=Limits(pids=7))
    assert await ahead.take("a", other) is None
    await ahead.close()
    assert start.made["a"].stopped


async def test_one_that_died_while_it_waited_is_not_given_out():
    start = Starter()
    ahead = NextSandbox(start)
    ahead.start_for(trial("a"))
    await settle()
    start.made["a"].alive = False
    assert await ahead.take("a", request("a")) is None
    await ahead.close()


async def test_what_is_being_taken_is_not_discarded_for_the_next():
    start = Starter()
    ahead, taking = await taking_early(start)
    for key in ("b", "c", "d"):
        ahead.start_for(trial(key))
    start.go.set()
    assert await taking is start.made["a"]
    await ahead.close()
    assert {key for key, place in start.made.items() if not place.stopped} == {"a"}


async def test_of_many_that_nobody_takes_few_are_kept():
    start = Starter()
    ahead = NextSandbox(start)
    for key in "abcd":
        ahead.start_for(trial(key))
        await settle()
    assert [key for key, place in start.made.items() if not place.stopped] == ["c", "d"]
    await ahead.close()
    assert all(place.stopped for place in start.made.values())


async def test_what_goes_wrong_is_left_to_the_trial():
    start = Starter()
    start.error = SandboxError("no room")
    ahead = NextSandbox(start)
    ahead.start_for(trial("a"))
    assert await ahead.take("a", request("a")) is None
    await ahead.close()


async def test_who_is_cancelled_while_it_waits_leaves_nothing_behind():
    start = Starter()
    ahead, taking = await taking_early(start)
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    start.go.set()
    await ahead.close()
    assert all(place.stopped for place in start.made.values())


async def test_the_end_does_not_wait_for_one_that_is_still_being_made():
    start = Starter()
    start.go.clear()
    ahead = NextSandbox(start)
    ahead.start_for(trial("a"))
    await settle()
    await ahead.close()
    assert start.made == {}
