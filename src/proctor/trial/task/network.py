"""Which network each phase of a task has, and how a sandbox gets from one to the next.

The task's own, the agent's or the verifier's, unless the spec says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from proctor.model.spec import SandboxSpec
from proctor.model.task import AgentLimits, Network, Step, Task, TaskEnvironment, VerifierSpec
from proctor.sandbox.base import Sandbox, end_processes, set_network


@dataclass(frozen=True, slots=True)
class Policy:
    """A network, and whom it reaches if it is an allow-list."""

    network: Network
    allowed_hosts: tuple[str, ...] = ()


def whole(environment: TaskEnvironment, spec: SandboxSpec) -> Policy:
    """The network of an environment, outside the phases that have their own."""
    return _chosen(spec, Policy(environment.network, environment.allowed_hosts))


def for_agent(task: Task, spec: SandboxSpec, step: Step | None = None) -> Policy:
    """The network while the agent works."""
    return _phase(spec, step.agent if step else task.agent, task.environment)


def for_verifier(task: Task, spec: SandboxSpec, step: Step | None = None) -> Policy:
    """The network while the tests run, in the agent's sandbox or in one of their own."""
    own = step.verifier if step else task.verifier
    environment = (own.environment if own.separate else None) or task.environment
    return _phase(spec, own, environment)


def _phase(spec: SandboxSpec, own: AgentLimits | VerifierSpec, environment: TaskEnvironment) -> Policy:
    if own.network is None:
        return whole(environment, spec)
    return _chosen(spec, Policy(own.network, own.allowed_hosts))


def _chosen(spec: SandboxSpec, asked: Policy) -> Policy:
    """The spec's word over the task's."""
    network = spec.network or asked.network
    if network != "allowlist":
        return Policy(network)
    return Policy(network, spec.allowed_hosts or asked.allowed_hosts)


def is_used(task: Task, spec: SandboxSpec) -> bool:
    """Whether any phase of a task has a network."""
    policies = [whole(task.environment, spec)]
    for step in task.steps or (None,):
        policies += [for_agent(task, spec, step), for_verifier(task, spec, step)]
    return any(policy.network != "none" for policy in policies)


class SandboxNetwork:
    """The network of one running sandbox as it goes from phase to phase."""

    def __init__(self, sandbox: Sandbox, begun: Policy) -> None:
        self._sandbox = sandbox
        self._now = begun

    async def enter(self, wanted: Policy) -> None:
        """Have this network from now on."""
        if wanted != self._now:
            await set_network(self._sandbox, wanted.network, wanted.allowed_hosts)
            self._now = wanted

    async def enter_quiet(self, wanted: Policy) -> None:
        """The same after the agent: nothing that it has left running gets the network of the tests."""
        if wanted != self._now:
            await end_processes(self._sandbox)
            await self.enter(wanted)

    async def rehearse(self, task: Task, spec: SandboxSpec) -> None:
        """Try each network that a later phase has: what cannot come up is told before the agent begins."""
        tried = {self._now.network, "none"}
        for policy in _in_the_same_sandbox(task, spec):
            if policy.network not in tried:
                tried.add(policy.network)
                await self.enter(policy)


def _in_the_same_sandbox(task: Task, spec: SandboxSpec) -> Iterator[Policy]:
    for step in task.steps or (None,):
        yield for_agent(task, spec, step)
        if not (step.verifier if step else task.verifier).separate:
            yield for_verifier(task, spec, step)
