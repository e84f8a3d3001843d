"""One episode: the agent is asked for an action, the environment executes it, until something ends it.

Budgets are counted here, outside both sandboxes. What the agent's side says is only ever an action; how the
environment is judged comes from the environment's side, where none of the agent's code runs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from proctor.agents.trajectory import Trajectory
from proctor.model.task import EpisodeSpec, Task
from proctor.trial.episode.line import Gone, Line

_DEEPEST = 40
FailureType = Literal[
    "budget_exhausted", "invalid_action", "sandbox_violation", "logic_failure", "timeout", "non_termination"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an episode ended by itself."""

    failure: FailureType | None
    """None: the validator is satisfied."""
    reason: str
    message: str


class AgentRaised(Exception):  # noqa: N818 - what happened, which the attempt judges
    """The agent's own code failed, or its process ended."""


class EnvironmentBroken(Exception):  # noqa: N818 - same
    """The task's code failed on what the agent did, although it works untouched."""


@dataclass(slots=True)
class Play:
    """An episode that is going on."""

    task: Task
    agent: Line
    environment: Line
    actions: Mapping[str, list[str]]
    visible_state: Any
    trajectory: Trajectory
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of the agent: how it reaches its model."""
    clock: Callable[[], float] = time.monotonic
    steps: int = 0
    tool_calls: int = 0
    agent_since: float | None = None
    """Since when the agent's answer is awaited; None while it is not the agent's turn."""
    _last: tuple[Any, Any] = field(default=(None, None))

    async def run(self) -> Ending:
        """Until the validator, a budget or a mistake ends it."""
        budgets = self._budgets()
        await self._ask_agent({"call": "reset", "task": self._told(), "env": dict(self.env)})
        while True:
            if self.steps >= budgets["steps"]:
                return _ended("budget_exhausted", "steps_exhausted", f"all {budgets['steps']} steps are used")
            observation = self._observation(budgets)
            action: Any = (await self._ask_agent({"call": "step", "observation": observation})).get("action")
            self.steps += 1
            if problem := wrong_action(action, self.actions):
                self._refuse(action, problem)
                return _ended("invalid_action", problem, f"the action {_short(action)} is wrong: {problem}")
            if self.tool_calls >= budgets["tool_calls"]:
                self._refuse(action, "tool_calls_exhausted")
                message = f"all {budgets['tool_calls']} tool calls are used"
                return _ended("budget_exhausted", "tool_calls_exhausted", message)
            if ending := await self._act(action):
                return ending

    async def _act(self, action: Mapping[str, Any]) -> Ending | None:
        """Execute an action; how it ended the episode, if it did."""
        args = action.get("args") or {}
        try:
            answer = await self.environment.ask({"call": "act", "type": action["type"], "args": args})
        except Gone as error:
            raise EnvironmentBroken(
                f"the environment broke at the action {_short(action)}: {error}"
            ) from error
        if "violation" in answer:
            self._record(action, {"ok": False, "error": f"sandbox_violation: {answer['violation']}"})
            return _ended("sandbox_violation", "sandbox_violation", str(answer["violation"]))
        if "raised" in answer:
            said = _said(answer["raised"])
            self._record(action, {"ok": False, "error": f"action_exception: {said}"})
            return _ended("invalid_action", "action_exception", f"the action {_short(action)} raised {said}")
        self.tool_calls += 1
        self._record(action, answer.get("result"))
        self._last = (action, answer.get("result"))
        self.visible_state = answer.get("visible_state")
        if "verdict" not in answer:
            raise EnvironmentBroken(f"the validator broke: {_said(answer.get('broken'))}")
        return _judged(answer["verdict"])

    async def _ask_agent(self, question: Mapping[str, Any]) -> dict[str, Any]:
        self.agent_since = self.clock()
        try:
            answer = await self.agent.ask(question)
        except Gone as error:
            raise AgentRaised(f"the agent gave no answer: {error}") from error
        self.agent_since = None
        if "error" in answer:
            raise AgentRaised(_said(answer["error"], whole=True))
        return answer

    @property
    def _episode(self) -> EpisodeSpec:
        assert self.task.episode is not None
        return self.task.episode

    def _budgets(self) -> dict[str, int]:
        return {"steps": self._episode.steps, "tool_calls": self._episode.tool_calls}

    def _told(self) -> dict[str, Any]:
        """What the agent is told of the task, once."""
        episode = self._episode
        sandbox = {
            "filesystem_roots": list(episode.filesystem_roots),
            "network_hosts": list(episode.network_hosts),
        }
        return {
            "id": self._episode.id,
            "description": self.task.description,
            "budgets": self._budgets(),
            "actions": dict(self.actions),
            "sandbox": sandbox,
        }

    def _observation(self, budgets: Mapping[str, int]) -> dict[str, Any]:
        used = {"steps": self.steps, "tool_calls": self.tool_calls}
        return {
            "step": self.steps + 1,
            "task": {"id": self._episode.id, "description": self.task.description},
            "last_action": self._last[0],
            "last_action_result": self._last[1],
            "visible_state": self.visible_state,
            "budget_remaining": {name: each - used[name] for name, each in budgets.items()},
        }

    def _record(self, action: Mapping[str, Any], result: Any) -> None:
        """A step of the trajectory. It has no clock but its time stamp: same steps, same trace."""
        number = str(self.steps)
        call = {
            "tool_call_id": number,
            "function_name": action["type"],
            "arguments": action.get("args") or {},
        }
        text = json.dumps(result, ensure_ascii=False, sort_keys=True)
        self.trajectory.add("agent", "", tool_calls=[call], results=[(number, text)])

    def _refuse(self, action: Any, problem: str) -> None:
        """A step whose action was not executed: it is no tool call."""
        self.trajectory.add("agent", _short(action), results=[(None, problem)])


def wrong_action(action: Any, actions: Mapping[str, list[str]]) -> str:
    """What is wrong with an action; empty when it may be executed."""
    if _too_deep(action):
        return "nested_too_deeply"
    if not isinstance(action, Mapping):
        return "action_must_be_dict"
    name, args = action.get("type"), action.get("args")
    if not name or not isinstance(name, str):
        return "invalid_action_type"
    if name not in actions:
        return "unknown_action"
    if args is not None and not isinstance(args, Mapping):
        return "args_must_be_dict"
    return "missing_arg" if any(each not in (args or {}) for each in actions[name]) else ""


def _too_deep(value: Any) -> bool:
    """Whether lists and mappings are in each other more often than anybody means."""
    level = [value]
    for _ in range(_DEEPEST):
        held = (each for each in level if isinstance(each, list | dict))
        level = [each for inner in held for each in (inner.values() if isinstance(inner, dict) else inner)]
        if not level:
            return False
    return True


def _judged(verdict: Mapping[str, Any]) -> Ending | None:
    """How the validator's word ends the episode; None when it goes on."""
    if verdict.get("ok"):
        return Ending(failure=None, reason="success", message=str(verdict.get("message", "")))
    if not verdict.get("terminal"):
        return None
    texts = (verdict.get(key) for key in ("failure_reason", "message", "error"))
    reason = next((each for each in texts if isinstance(each, str) and each.strip()), "logic_failure")
    stated: Any = verdict.get("failure_type")
    failure: FailureType = stated if stated in get_args(FailureType) else "logic_failure"
    return _ended(failure, "logic_failure", reason)


def _ended(failure: FailureType, reason: str, message: str) -> Ending:
    return Ending(failure=failure, reason=reason, message=message)


def _said(error: Any, *, whole: bool = False) -> str:
    """An exception from inside, as text."""
    if not isinstance(error, Mapping):
        return str(error)[:300]
    if whole and error.get("traceback"):
        return str(error["traceback"])[-4000:].strip()
    return f"{error.get('type')}: {error.get('message')}"[:300]


def _short(value: Any) -> str:
    return json.dumps(value)[:200]
