"""How the agent of an attempt reaches its models: by the gateway, with a token of its own while it works.

The gateway counts, keeps budgets and knows whether a provider failed; its word goes before the agent's.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from proctor.agents.base import (
    API_NAMES,
    Agent,
    AgentResult,
    AgentUnavailable,
    Ask,
    BudgetExhausted,
    ModelAccess,
)
from proctor.errors import ProctorError, SandboxError, TaskError, UsageError
from proctor.model.outcome import CONTEXT_LENGTH
from proctor.model.plan import PlannedTrial
from proctor.model.record import Artifact
from proctor.model.trial import Lease
from proctor.sandbox.base import Sandbox, listen
from proctor.trial.task.clock import AgentClock
from proctor.trial.task.unanswered import ContextOverflow, of_provider, unanswered

if TYPE_CHECKING:
    from pathlib import Path

    from proctor.gateway.app import Gateway
    from proctor.gateway.meter import Call
    from proctor.gateway.replay import Replay
    from proctor.gateway.standstill import Standstill
    from proctor.gateway.tokens import Access
    from proctor.store.spending import Budget
    from proctor.trial.collect import Collector

PORT = 41114
"""Where the gateway is inside sandboxes, if that is free: what agents tell of it stays the same."""
TAPE = "tape.jsonl.zst"
_NOTED_S = 1.0
_ONLY_IF_ANY = frozenset({"unknown_usage", "unknown_cost", "lost", "translated", "budget_wait_s"})


class RunBudgetSpent(ProctorError):  # noqa: N818 - says what happened
    """The budget of the run or of the day is spent: nobody's fault, and the trial can be repeated."""


class ReplayDiverged(TaskError):  # noqa: N818 - same
    """The agent asked something that its tape does not have."""


def new_token() -> str:
    """What an attempt shows to the gateway; it begins like those that the gateway itself would make."""
    return f"proctor-{secrets.token_urlsafe(32)}"


def tape_name(leg: int) -> str:
    """The name of the tape of a step of a task; the first, or only one, is 0."""
    return TAPE if leg == 0 else f"tape-{leg + 1}.jsonl.zst"


@dataclass(kw_only=True)
class ModelGateway:
    """What the attempts of a run share in one process: the gateway, opened when the first one needs it."""

    open: Callable[[], AbstractAsyncContextManager[Gateway]]
    speaks: Callable[[Agent, str | None], str | None]
    """Why an agent cannot reach a model by the gateway; empty when it can, None when it wants none."""
    budgets: Callable[[PlannedTrial, Lease], Sequence[Budget]] = lambda *_: ()
    replay: Callable[[PlannedTrial, int], Replay] | None = None
    """The tape of a trial's step, where the run is a replay; ReplayDiverged when there is none."""
    on_spent: Callable[[str], None] = lambda _: None
    """Told when a budget of the run or of the day is spent."""
    _gateway: Gateway | None = None
    _opened: AsyncExitStack = field(default_factory=AsyncExitStack)
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def opened(self) -> Gateway:
        """The gateway, which listens."""
        async with self._opening:
            if self._gateway is None:
                self._gateway = await self._opened.enter_async_context(self.open())
            return self._gateway

    def lasting_refusal(self, agent: Agent, trial: PlannedTrial, run_id: str) -> str:
        """Why an attempt need not begin: the provider of its model is asked no more in this run."""
        if self._gateway is None or self.replay or not trial.model or self.speaks(agent, trial.model) != "":
            return ""
        return self._gateway.lasting_refusal(run_id, trial.model)

    async def close(self) -> None:
        """Stop listening, and write what is not in the books yet."""
        self._gateway = None
        await self._opened.aclose()


class AttemptModels:
    """The models of one attempt. Without a gateway, or for an agent that wants none, there are none."""

    def __init__(
        self, shared: ModelGateway | None, trial: PlannedTrial, lease: Lease, agent: Agent, token: str
    ) -> None:
        self.trial, self.lease, self.agent, self.token = trial, lease, agent, token
        self.shared = shared
        self.missing = shared.speaks(agent, trial.model) if shared else None
        self.used = shared is not None and self.missing == ""
        self.calls: list[Call] = []
        self.tapes: list[tuple[str, bytes]] = []
        self.notes: list[str] = []
        self.clock = AgentClock()
        self._standstill: Standstill | None = None
        """Of the task, or of its current step."""
        self.budget_wait_s = 0.0
        """How long the agent's clock stood still in all, because a budget had to be waited for."""
        if self.missing:
            self.notes.append(f"the model is not reached by the gateway: {self.missing}")

    async def run(
        self,
        work: Callable[[ModelAccess], Coroutine[Any, Any, AgentResult]],
        sandbox: Sandbox,
        *,
        hosted_tools: bool,
    ) -> AgentResult:
        """Let the agent work. Its token ends with it, and the gateway's word goes before its own."""
        if not self.used:
            return await work(ModelAccess(model=self.trial.model))
        assert self.shared
        gateway = await self.shared.opened()
        await self._prepare(gateway)
        spent = asyncio.Event()
        access = self._issue(gateway, spent, hosted_tools=hosted_tools)
        try:
            result = await _until(spent, work(await self._given(gateway, access, sandbox)))
        except Exception as error:
            await self._end(gateway, access)
            if word := self._word(access, error):
                raise word from error
            raise
        except BaseException:
            await self._end(gateway, access)
            raise
        await self._end(gateway, access)
        if (word := self._word(access, result)) or result is None:
            raise word or BudgetExhausted(access.exhausted)
        return result

    async def _prepare(self, gateway: Gateway) -> None:
        from proctor.gateway.apis import Api

        assert self.shared
        assert self.trial.model
        if self.shared.replay:
            return
        try:
            apis = {Api(each) for each in getattr(self.agent, "apis", API_NAMES)}
            await gateway.prepare(self.trial.model, apis)
        except UsageError as error:
            raise AgentUnavailable(str(error)) from error

    def _issue(self, gateway: Gateway, spent: asyncio.Event, *, hosted_tools: bool) -> Access:
        assert self.shared
        assert self.trial.model
        from proctor.gateway.standstill import Standstill

        replay = self.shared.replay(self.trial, len(self.tapes)) if self.shared.replay else None
        self._standstill = Standstill(self.clock.stand_still)
        return gateway.issue(
            run_id=self.lease.run_id,
            trial=self.trial.index,
            attempt=self.lease.attempt,
            models=(self.trial.model,),
            token=self.token,
            budgets=() if replay else tuple(self.shared.budgets(self.trial, self.lease)),
            on_exhausted=lambda _: spent.set(),
            replay=replay,
            pins=bool(getattr(self.agent, "pins_model", False)),
            hosted_tools=hosted_tools,
            standstill=self._standstill,
        )

    async def _given(self, gateway: Gateway, access: Access, sandbox: Sandbox) -> ModelAccess:
        """The address, where the agent works: on this machine's loopback, or on the sandbox's."""
        from proctor.gateway.apis import sdk_environment

        url = gateway.base_url
        ask: Ask | None = partial(gateway.ask, access)
        if getattr(self.agent, "inside", False):
            ask = None
            try:
                listener = await listen(sandbox, PORT)
            except SandboxError as error:
                raise AgentUnavailable(
                    f"agent {self.agent.name} calls models from within the sandbox: {error}"
                ) from error
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            await gateway.add_socket(listener, access)
        return ModelAccess(
            model=self.trial.model,
            base_urls={"openai": f"{url}/v1", "anthropic": url, "gemini": url},
            token=self.token,
            env=sdk_environment(url, self.token),
            ask=ask,
        )

    async def _end(self, gateway: Gateway, access: Access) -> None:
        await gateway.end(access)
        self.calls += access.calls
        self.budget_wait_s += access.standstill.seconds
        if (waited_s := access.standstill.seconds) >= _NOTED_S:
            self.notes.append(
                f"the agent's calls waited {waited_s:.1f} s for what other calls held of a budget; "
                "that is not part of its time"
            )
        if (count := sum(call.translated for call in access.calls)) and not access.replay:
            self.notes.append(f"LiteLLM translated {count} calls between the agent's API and the provider's")
        if recorder := gateway.recorder(access):
            data = await asyncio.to_thread(recorder.compressed)
            self.tapes.append((tape_name(len(self.tapes)), data))
            self.notes += [recorder.full] if recorder.full else []
            gateway.forget(access)
        elif access.replay:
            self.tapes.append(("", b""))
            if (left := access.replay.left) and not access.replay.divergence:
                self.notes.append(f"replay: {left} requests of the tape were not asked for")

    def _word(self, access: Access, ended: AgentResult | Exception | None) -> ProctorError | None:
        """What the gateway says about how the agent ended; None where that is the agent's own affair."""
        if access.replay and access.replay.divergence:
            return ReplayDiverged(access.replay.divergence.message)
        if access.exhausted and access.exhausted_scope in {"run", "day"}:
            assert self.shared
            self.shared.on_spent(access.exhausted)
            return RunBudgetSpent(access.exhausted)
        if not any(call.answered for call in self.calls):
            return unanswered(self.agent, access, self.calls, ended)
        if access.exhausted:
            return BudgetExhausted(access.exhausted)
        if self.calls[-1].failure == CONTEXT_LENGTH:
            return ContextOverflow(self.calls[-1].message)
        return of_provider(access)

    @property
    def never_answered(self) -> bool:
        """Whether the agent asked its model, or had to, and got no answer: nothing was tried."""
        asked = bool(self.calls) or getattr(self.agent, "needs_model", False)
        return self.used and asked and not any(call.answered for call in self.calls)

    def standstill_s(self) -> float:
        """How long the agent's clock stood still at the task, or at its current step."""
        return self._standstill.seconds if self._standstill else 0.0

    @property
    def waited_s(self) -> float:
        """How long calls waited for their turn and between tries, all together; not those for a budget."""
        return sum(call.waited_s - call.budget_wait_s for call in self.calls)

    def usage(self) -> dict[str, Any]:
        """What the gateway counted, in all and by model; what is unknown is not there, and is counted."""
        by_model: defaultdict[str, list[Call]] = defaultdict(list)
        for call in self.calls:
            by_model[call.model].append(call)
        return {
            **sums(self.calls),
            "models": {model: sums(calls) for model, calls in sorted(by_model.items())},
        }

    def keep_tapes(self, collector: Collector, folder: Path) -> list[Artifact]:
        """The tapes as files of the attempt."""
        return [collector.keep(folder, name, data) for name, data in self.tapes if name]


def sums(calls: Sequence[Call]) -> dict[str, Any]:
    """What some calls used; what is unknown is not there, and is counted."""
    from proctor.gateway.meter import Sums

    found = {
        name: value
        for name, value in Sums.of(calls).to_dict().items()
        if value is not None and (value or name not in _ONLY_IF_ANY)
    }
    if first := [call.first_token_s for call in calls if call.first_token_s is not None]:
        found["first_token_s"] = sum(first) / len(first)
    return found


async def _until(spent: asyncio.Event, work: Awaitable[AgentResult]) -> AgentResult | None:
    """What the work comes to; None when it was ended because the budget is spent."""
    working = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(spent.wait())
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        if ended := not working.done():
            working.cancel()
            await asyncio.wait({working})
    return None if ended and working.cancelled() else working.result()
