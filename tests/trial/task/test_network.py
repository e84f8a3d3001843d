"""Which network each phase has, and the change from one to the next, on the fake and on real sandboxes."""

from __future__ import annotations

import pytest
from tests.trial.test_task_trial import Scripted, attempt, rewards

from proctor.agents.base import AgentResult
from proctor.model.outcome import Outcome
from proctor.model.spec import SandboxSpec
from proctor.model.task import AgentLimits, Step, Task, TaskEnvironment, VerifierSpec
from proctor.sandbox.base import Root
from proctor.sandbox.bubblewrap import Bubblewrap
from proctor.sandbox.fake import Fake
from proctor.sandbox.probe import ADDRESS, an_outside
from proctor.trial.task import network
from proctor.trial.task.network import Policy

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
        network.whole(task.environment, chosen),
        network.for_agent(task, chosen),
        network.for_verifier(task, chosen),
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
    assert not network.is_used(made(tmp_path, environment=none), SandboxSpec())
    assert network.is_used(made(tmp_path, environment=none, steps=(step,)), SandboxSpec())
    assert not network.is_used(made(tmp_path, environment=none, steps=(step,)), SandboxSpec(network="none"))


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
