"""The sandboxes of a task: what they are asked for, their networks, and the one that is started ahead."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from proctor.errors import SandboxError
from proctor.model.plan import PlannedTrial
from proctor.model.spec import SandboxSpec
from proctor.model.task import AgentLimits, Network, Step, Task, TaskEnvironment, VerifierSpec
from proctor.sandbox.base import Limits, Root, Sandbox, SandboxRequest, end_processes, set_network
from proctor.trial.task.setting import TaskSetting

_WORKDIR = "/app"
_PIDS = 512


def limits_for(task: Task, spec: SandboxSpec) -> Limits:
    """The spec's limits over the task's own over the defaults."""
    environment = task.environment
    policy = whole(environment, spec)
    return Limits(
        cpus=spec.cpus or environment.cpus,
        memory_bytes=spec.memory_bytes or environment.memory_bytes,
        storage_bytes=spec.storage_bytes or environment.storage_bytes,
        pids=spec.pids or _PIDS,
        network=policy.network,
        allowed_hosts=policy.allowed_hosts,
    )


def workdir_of(task: Task, root: Root) -> str:
    """Where the agent starts: the task's setting, then the image's, then the usual default."""
    if task.environment.workdir:
        return task.environment.workdir
    return root.workdir if root.workdir not in {"", "/"} else _WORKDIR


def sandbox_request(
    setting: TaskSetting,
    task: Task,
    trial: PlannedTrial,
    root: Root,
    env: Mapping[str, str],
    *,
    suffix: str,
    state: Path | None = None,
    policy: Policy | None = None,
) -> SandboxRequest:
    """What a sandbox of a trial is to be; `suffix` makes its name unique, `policy` is another network."""
    limits = limits_for(task, setting.sandbox)
    if policy:
        limits = replace(limits, network=policy.network, allowed_hosts=policy.allowed_hosts)
    return SandboxRequest(
        name=f"{setting.run_id}-{trial.index}-{suffix}",
        root=root,
        limits=limits,
        env={**root.env, **env},
        labels={"run": setting.run_id, "trial": trial.key[:16], "worker": setting.worker},
        state=state,
        granted=setting.given if root.compose else {},
        hidden=_hidden(setting, env) if root.compose else (),
    )


def _hidden(setting: TaskSetting, env: Mapping[str, str]) -> tuple[str, ...]:
    """The secrets that a compose file can come by."""
    reachable = "\0".join((*setting.given.values(), *env.values()))
    return tuple(each for each in setting.redactor.secrets.values() if each in reachable)


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


Started = tuple[SandboxRequest, Sandbox]
_KEPT = 2


class NextSandbox:
    """Sandboxes for the trials announced last: one, and the one before while it is not taken yet."""

    def __init__(self, start: Callable[[PlannedTrial], Awaitable[Started | None]]) -> None:
        self._start = start
        self._starting: dict[str, asyncio.Task[Started | None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def start_for(self, trial: PlannedTrial) -> None:
        """This trial comes next: start its sandbox."""
        if trial.key not in self._starting:
            self._starting[trial.key] = asyncio.create_task(self._begin(trial))
            if len(self._starting) > _KEPT:
                self._discard(self._starting.pop(next(iter(self._starting))))

    async def _begin(self, trial: PlannedTrial) -> Started | None:
        try:
            return await self._start(trial)
        except Exception:  # noqa: BLE001 - the trial itself meets the same, and there it is recorded
            return None

    async def take(self, key: str, request: SandboxRequest) -> Sandbox | None:
        """The sandbox, if there is one for this trial and just this request; it is the caller's then."""
        starting = self._starting.pop(key, None)
        if starting is None:
            return None
        try:
            found = await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._discard(starting)
            raise
        if found and replace(found[0], name=request.name) == request and getattr(found[1], "alive", True):
            return found[1]
        self._discard(starting)
        return None

    def _discard(self, starting: asyncio.Task[Started | None]) -> None:
        starting.cancel()  # its image may take longer to build than all trials do
        leaving = asyncio.create_task(_stop(starting))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        """No more trials will come: stop what was not used."""
        while self._starting:
            self._discard(self._starting.popitem()[1])
        if self._leaving:
            await asyncio.gather(*self._leaving)


async def _stop(starting: asyncio.Task[Started | None]) -> None:
    await asyncio.wait({starting})
    if not starting.cancelled() and (found := starting.result()):
        with suppress(SandboxError):
            await found[1].stop()
