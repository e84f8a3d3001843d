"""The loop of the built-in agent: ask the model, do what it wants in the shell, tell it what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from proctor.agents.base import (
    AgentContext,
    AgentResult,
    AgentUnavailable,
    BudgetExhausted,
)
from proctor.agents.chat import Chat, ContextTooLong, Reply
from proctor.agents.terminal.beginning import offered, remembered
from proctor.agents.terminal.keys import keys_of
from proctor.agents.terminal.memory import Memory
from proctor.agents.terminal.protocol import (
    BUSY,
    CONFIRM,
    CUT_OFF,
    IDLE,
    NOTHING,
    SYSTEM,
    TOOLS,
    Action,
    observations,
    wanted,
)
from proctor.agents.terminal.session import Seen, Session
from proctor.errors import UsageError

if TYPE_CHECKING:
    from proctor.model.task import Task
    from proctor.sandbox.base import Sandbox

_SILENT = 3
"""Replies in a row without a command after which the agent counts as having given up."""
_KEYS_S = 2.0
_LEAST_TOKENS = 2_000
_CONTEXT_TOKENS = 120_000


class Terminal:
    """A model with a shell that stays.

    `options` go to the endpoint as they are (temperature, max_tokens …). `context_tokens` is how long the
    conversation may become before its oldest part is shortened.
    """

    name = "terminal"
    needs_model = True
    apis = ("chat",)
    api_options = ("options", "system", "request_timeout_s", "context_tokens")

    def __init__(
        self,
        *,
        options: Mapping[str, Any] | None = None,
        system: str = SYSTEM,
        request_timeout_s: float = 600.0,
        context_tokens: int = _CONTEXT_TOKENS,
    ) -> None:
        from proctor.model.canonical import digest

        if context_tokens < _LEAST_TOKENS:
            raise UsageError(
                f"agent terminal: context_tokens is at least {_LEAST_TOKENS}, not {context_tokens}"
            )
        self.options = dict(options or {})
        self.system = system
        self.request_timeout_s = request_timeout_s
        self.context_tokens = context_tokens
        self.version = digest(["2", self.options, system, context_tokens])[:12]

    async def run(
        self,
        task: Task,  # noqa: ARG002 - the context holds what the agent may know
        sandbox: Sandbox,
        model: str | None,
        context: AgentContext,
    ) -> AgentResult:
        """Loop until the model says it is done or a limit is reached."""
        if not model:
            raise AgentUnavailable("agent terminal needs a model: set 'model' in the spec")
        if not context.access.ask:
            raise AgentUnavailable("agent terminal needs a provider of models: see 'proctor models'")
        memory = self._memory(context)
        session = Session(sandbox, context)
        await session.open()
        chat = Chat(context.access.ask, timeout_s=self.request_timeout_s)
        try:
            return await _Work(chat, session, memory, model, self.options, context).loop()
        finally:
            await session.close()

    def _memory(self, context: AgentContext) -> Memory:
        limits = context.limits
        system = self.system.format(
            workdir=context.workdir, steps=limits.steps, command_s=f"{limits.command_timeout_s:g}"
        )
        return Memory(
            {"role": "system", "content": system},
            remembered(context.prior),
            {"role": "user", "content": context.instruction + offered(context)},
            self.context_tokens,
        )


class _Work:
    """One attempt."""

    def __init__(
        self,
        chat: Chat,
        session: Session,
        memory: Memory,
        model: str,
        options: Mapping[str, Any],
        context: AgentContext,
    ) -> None:
        self._chat, self._session, self._memory = chat, session, memory
        self._model, self._options, self._context = model, options, context
        self._asked = False
        """Whether the model was asked to confirm that it is done."""

    async def loop(self) -> AgentResult:
        """Until it is done, gives up, or has used its steps."""
        silent = 0
        for number in range(1, self._context.limits.steps + 1):
            reply = await self._ask()
            actions = wanted(reply)
            results: list[tuple[str, str]] = []
            done = False
            try:
                for action in actions:
                    results.append((action.id, CUT_OFF))
                    text, done = await self._act(action)
                    results[-1] = action.id, text
                    if done:
                        break
            finally:
                self._note(reply, actions, results)
            if done:
                return AgentResult(usage={"steps": number, "requests": number})
            silent = 0 if any(each.kind != "mistake" for each in actions) else silent + 1
            if silent >= _SILENT:
                return AgentResult(status="gave_up", usage={"steps": number, "requests": number})
            self._memory.add([{**reply.message, "role": "assistant"}, *observations(reply, results)])
        if self._asked and actions and actions[-1].kind == "finish":
            return AgentResult(usage={"steps": number, "requests": number})
        raise BudgetExhausted(f"the agent used all of its {self._context.limits.steps} steps")

    async def _ask(self) -> Reply:
        """The model's reply; a conversation that it finds too long is shortened, a few times."""
        while True:
            if said := self._memory.fit():
                self._context.trajectory.add("system", said)
            try:
                return await self._chat.ask(
                    self._model, self._memory.messages(), tools=TOOLS, options=self._options
                )
            except ContextTooLong:
                most = min(self._memory.most_tokens, self._memory.tokens()) // 2
                if most < _LEAST_TOKENS:
                    raise
                self._memory.most_tokens = most
                said = f"too long; from here on it is kept below {most} tokens."
                self._context.trajectory.add("system", f"The model's service found the conversation {said}")

    async def _act(self, action: Action) -> tuple[str, bool]:
        """What came of it, and whether that was the end."""
        if action.kind == "finish":
            done, self._asked = self._asked, True
            return ("finished" if done else CONFIRM), done
        return await self._shown(action), False

    async def _shown(self, action: Action) -> str:
        longest_s = self._context.limits.command_timeout_s
        usual_s = _KEYS_S if action.kind == "keys" else longest_s
        wait_s = min(usual_s if action.seconds is None else action.seconds, longest_s)
        match action.kind:
            case "shell" if self._session.running:
                return BUSY
            case "shell":
                seen = await self._session.run(action.text, wait_s)
            case "wait" if not self._session.running:
                return IDLE
            case "keys" | "wait":
                seen = await self._session.type(keys_of(action.text), wait_s)
            case _:
                return action.text
        return _told(seen, wait_s)

    def _note(self, reply: Reply, actions: list[Action], results: list[tuple[str, str]]) -> None:
        self._context.trajectory.add(
            "agent",
            reply.text,
            tool_calls=[each.as_call() for each in actions if each.name != "text"],
            results=results or [(None, NOTHING)],
            metrics=reply.usage,
            reasoning=reply.reasoning,
        )


def _told(seen: Seen, wait_s: float) -> str:
    """What a model is told of an output."""
    if seen.restarted:
        state = "the shell has ended; a new one was started, without its folder, variables and jobs"
    elif seen.exit_code is not None:
        state = f"exit code {seen.exit_code}"
    else:
        shows = "a full-screen program, whose page this is, runs" if seen.full_screen else "still at work"
        state = f"{shows} after {wait_s:g} s: wait, send keys, or interrupt it with the keys <C-c>"
    return f"{seen.text}\n[{state}]"
