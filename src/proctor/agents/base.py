"""What an agent is, what it is given, and what it gives back. It never sees a provider's key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from proctor.agents.trajectory import Trajectory
from proctor.errors import ProctorError, TaskError

if TYPE_CHECKING:
    from proctor.model.task import McpServer, Task
    from proctor.sandbox.base import Sandbox

API_NAMES = ("chat", "responses", "messages", "gemini")
"""The APIs that agents and providers may speak."""
Ask = Callable[[str, bytes], Awaitable[tuple[int, bytes]]]
"""Takes the path of an API and a body; gives the status and the body of the answer."""
LogWriter = Callable[[str, bytes], None]
"""Takes (log name, bytes) as they come; complete, bounded by rotation."""


class AgentFailed(ProctorError):  # noqa: N818 - a verdict on the agent, which the trial records
    """The agent broke down; the verifier still judges what it left."""


class AgentUnavailable(TaskError):  # noqa: N818 - same
    """What the agent needs was never there, found before it began: nothing was tried, nothing is scored."""


class BudgetExhausted(ProctorError):  # noqa: N818 - same
    """The agent spent what it was allowed: steps, output, requests, tokens or money."""


class AgentTimeout(TimeoutError):  # noqa: N818 - same
    """The agent was at work when its time was over; whoever raises it has given what there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What one attempt may use. The clock is kept by the trial, what models cost by the gateway."""

    steps: int = 100
    output_bytes: int = 64 << 20
    command_timeout_s: float = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAccess:
    """How one attempt reaches its model: the gateway's address, and a token for as long as it works."""

    model: str | None = None
    base_urls: Mapping[str, str] = field(default_factory=dict)
    """The gateway's address as clients of `openai`, `anthropic` and `gemini` want it."""
    token: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    """Address and token under the names that the providers' clients read."""
    ask: Ask | None = field(default=None, repr=False, compare=False)
    """A call of the gateway out of this process, without a connection; None for an agent inside a sandbox."""

    @property
    def base_url(self) -> str:
        """The address for OpenAI's API; empty when there is none."""
        return self.base_urls.get("openai", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentContext:
    """One attempt, as the agent may know it."""

    instruction: str
    workdir: str
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    timeout_s: float = 600.0
    seed: int = 0
    limits: Allowance = field(default_factory=Allowance)
    step: str | None = None
    """The name of the current step of a multi-step task."""
    mcp_servers: tuple[McpServer, ...] = ()
    """Servers of tools that the task offers."""
    skills_dir: str | None = None
    """A folder inside with skills: one folder each, with a SKILL.md."""
    prior: Path | None = None
    """A file of the host with earlier work to go on from, as an ATIF document."""
    solution_env: Mapping[str, str] = field(default_factory=dict)
    """The variables of the author's solution, for the oracle."""
    access: ModelAccess = field(default_factory=ModelAccess)
    trajectory: Trajectory
    log: LogWriter
    standstill_s: Callable[[], float] = field(default=lambda: 0.0, repr=False, compare=False)
    """How long all its calls of models waited for a budget so far, which is not its time."""

    def allowed_s(self) -> float:
        """How long it may work by the clock on the wall, as far as that is known now."""
        return self.timeout_s + self.standstill_s()

    @property
    def model_base_url(self) -> str:
        """The address of the attempt's model."""
        return self.access.base_url

    @property
    def model_token(self) -> str:
        """The attempt's token for it."""
        return self.access.token


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResult:
    """How the agent says it ended. The verifier decides what that is worth."""

    status: Literal["finished", "gave_up"] = "finished"
    exit_code: int | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    """prompt_tokens, completion_tokens, cost_usd, requests, tool_calls, steps."""
    notes: tuple[str, ...] = ()


class Agent(Protocol):
    """Solves a task inside a sandbox."""

    # An agent may say more of itself than the protocol asks for:
    # `apis`: which of API_NAMES it speaks; () for none, and where it does not say it, any.
    # `needs_model`: it cannot work without a model. `inside`: it calls models from within the sandbox.
    # `opened(task, sandbox, model, context)`: a context that sets it up before its time starts; what it gives
    # is called in place of `run`.
    # `api_options`: options that a spec from the API may set. None unless it says so: the class is made on
    # the server's machine, and an option that names a file, a class or an address reaches what is there.
    # `keeps_time`: it ends by itself when `context.timeout_s` is over, keeps what it has and raises
    # AgentTimeout. The trial ends others at that moment, and whatever they were about to tell is lost.
    # `pins_model`: calls of other models, for titles and the like, are made with the model of the attempt.
    name: str
    version: str

    async def run(
        self, task: Task, sandbox: Sandbox, model: str | None, context: AgentContext
    ) -> AgentResult:
        """Work until done. Raise AgentFailed, BudgetExhausted or ProviderError; anything else is its bug.

        A TimeoutError is taken for the infrastructure's unless it is an AgentTimeout.
        """
