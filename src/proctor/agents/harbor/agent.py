"""Harbor's agents: `terminus-2`, and `harbor:NAME` for the others.

The agent's code runs on this machine in Harbor's own Python, with no key in its environment. Its commands run
in our sandbox. It reaches its model by the gateway: from here if its loop is in that process, from within the
sandbox if it installs a program there.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from proctor.agents.base import API_NAMES, AgentContext, AgentFailed, AgentResult, AgentUnavailable
from proctor.agents.harbor import tmux
from proctor.agents.harbor.recipe import HarborPackages
from proctor.agents.harbor.steps import Steps
from proctor.errors import UsageError
from proctor.sandbox.harbor.place import VERSION, HarborPlace, find, plain_environment
from proctor.settings import load_settings
from proctor.spec.node import nearest

if TYPE_CHECKING:
    from proctor.agents.harbor.serving import Served
    from proctor.model.task import McpServer, Task
    from proctor.sandbox.base import Sandbox
    from proctor.sandbox.harbor.bridge import Bridge
    from proctor.sandbox.harbor.line import Refused

PREFIX = "harbor:"
_APIS = {
    "claude-code": "messages",
    "codex": "responses",
    "gemini-cli": "gemini",
    **dict.fromkeys(("aider", "mini-swe-agent", "opencode", "openhands", "qwen-coder", "terminus-2"), "chat"),
}
"""What Harbor's agents call, as far as it was tried."""
_CLIENTS = {"chat": "openai", "responses": "openai", "messages": "anthropic", "gemini": "gemini"}
"""The provider that Harbor takes a model to be of, so that it is called by this API."""
_OUTSIDE = frozenset({"terminus-2", "computer-1", "dspy-rlm", "nop"})
"""Agents that call models from their own process, and not from the sandbox."""
_WITHOUT_MODEL = frozenset({"nop"})
_NEEDS_TMUX = frozenset({"terminus-2"})
_LOGS = "/logs/agent"
_LOOKUP = 'PATH="$PATH:$1"; command -v bash >/dev/null || exit 121; [ -z "$2" ] || tmux -V || exit 122'
_LOOKUP_TIMEOUT_S = 60.0
_MOST_SAID = 1500
Work = Callable[[], Awaitable[AgentResult]]


class HarborAgent:
    """One of Harbor's agents; options that are not named here are those of Harbor's own class."""

    name: ClassVar[str] = "harbor"
    agent: ClassVar[str] = ""
    """Its name in Harbor."""
    package: ClassVar[str] = "harbor"
    """What `proctor agents install` installs for it."""
    version: str = VERSION
    recipe = HarborPackages()
    needs: ClassVar[tuple[str, ...]] = ("a Python from 3.12 to 3.14 on this machine",)
    needs_model = True
    pins_model = True
    apis: tuple[str, ...] = API_NAMES
    inside = True
    api_options: ClassVar[tuple[str, ...]] = ("version", "api", "env", "setup_timeout_s")

    def __init__(
        self,
        *,
        version: str = "",
        api: str = "",
        env: Mapping[str, str] | None = None,
        setup_timeout_s: float = 600.0,
        **options: Any,
    ) -> None:
        self.version = version or VERSION
        if api and api not in API_NAMES:
            raise UsageError(f"agent_options: api is one of {', '.join(API_NAMES)}, not '{api}'")
        if api:
            self.apis = (api,)
        self.api = api or _APIS.get(self.agent, "chat")
        self.env = dict(env or {})
        self.setup_timeout_s = setup_timeout_s
        for name in ("api_base", "model_name", "logs_dir", "extra_env"):
            if name in options:
                raise UsageError(f"agent_options: '{name}' is set by Proctor; remove it")
        self.options = options
        self._cache = load_settings().cache_dir
        self._found: set[tuple[str, str | None]] = set()
        """Tasks in whose sandboxes everything was found; sandboxes of one task start alike."""
        self._check_name()

    def _check_name(self) -> None:
        if self.agent == "oracle":
            raise UsageError("'harbor:oracle' is not run here; Proctor's own agent 'oracle' does the same")
        known = self._place()
        if known and self.agent not in known.agents:
            hint = nearest(self.agent, known.agents)
            raise UsageError(f"Harbor {known.version} has no agent '{self.agent}'{hint}")

    def _place(self) -> HarborPlace | None:
        return find(self._cache, self.version)

    def binds(self) -> dict[str, Path]:
        """A tmux, for agents that need one and images that have none."""
        return tmux.binds(self._cache) if self.agent in _NEEDS_TMUX else {}

    async def missing(self, task: Task, sandbox: Sandbox, model: str | None, context: AgentContext) -> str:  # noqa: ARG002 - as all agents
        """What this machine or the sandbox lacks; empty when the agent can start."""
        place = self._place()
        if place is None or not place.has_python:
            chosen = "" if self.version == VERSION else f" --version {self.version}"
            again = f"proctor agents install harbor{chosen}"
            if place is None:
                return f"agent {self.name} needs Harbor {self.version} on this machine: run '{again}'"
            return (
                f"the Python that Harbor was installed with is gone: run 'proctor agents remove harbor' and "
                f"'{again}'"
            )
        at = task.digest, context.user
        if at in self._found:
            return ""
        needs_tmux = "tmux" if self.agent in _NEEDS_TMUX else ""
        looked = await sandbox.exec(
            ["/bin/sh", "-c", _LOOKUP, "sh", tmux.BIN, needs_tmux],
            env=context.env,
            user=context.user,
            timeout_s=_LOOKUP_TIMEOUT_S,
            keep_bytes=4096,
        )
        if looked.exit_code == 121:
            return f"agent {self.name} needs bash in the sandbox, and the image has none"
        said = looked.stdout.decode(errors="replace")
        if looked.exit_code or looked.timed_out or (needs_tmux and tmux.too_old(said)):
            return (
                f"agent {self.name} needs tmux 3.2 or later in the sandbox, and neither the image nor this "
                "machine has one that works there: install tmux on this machine, or use an image that has it"
            )
        self._found.add(at)
        return ""

    async def run(
        self, task: Task, sandbox: Sandbox, model: str | None, context: AgentContext
    ) -> AgentResult:
        """Set up, and work."""
        async with self.opened(task, sandbox, model, context) as work:
            return await work()

    @asynccontextmanager
    async def opened(
        self, task: Task, sandbox: Sandbox, model: str | None, context: AgentContext
    ) -> AsyncIterator[Work]:
        """The agent, set up and ready to work; what fails until then is not its doing."""
        from proctor.agents.harbor.serving import Served
        from proctor.sandbox.harbor.bridge import Bridge

        place = self._place()
        if place is None:
            raise AgentUnavailable(await self.missing(task, sandbox, model, context))
        folder = Path(tempfile.mkdtemp(prefix="proctor-harbor-"))
        steps = Steps(folder, context)
        served = Served(sandbox, context, folder, tmux.BIN if self.agent in _NEEDS_TMUX else "")
        bridge = Bridge(
            place,
            env={**plain_environment(folder), **({} if self.inside else context.access.env)},
            cwd=folder,
            answer=served.answer,
            on_output=lambda data: context.log("harbor.txt", data),
        )
        try:
            async with bridge:
                await self._set_up(bridge, served, sandbox, model, context, folder)
                yield lambda: self._work(bridge, served, steps, context)
        finally:
            served.close()
            steps.read()
            shutil.rmtree(folder, ignore_errors=True)

    async def _set_up(
        self,
        bridge: Bridge,
        served: Served,
        sandbox: Sandbox,
        model: str | None,
        context: AgentContext,
        folder: Path,
    ) -> None:
        import asyncio

        from proctor.sandbox.harbor.line import Refused

        made = {
            "name": self.agent,
            "model": self._model(model),
            "folder": str(folder),
            "user": context.user,
            "options": {**self._own_options(context), **self.options},
            # What an agent with a loop out here is given reaches the shell inside.
            "env": {**(context.access.env if self.inside else {}), **self.env},
            "mcp_servers": [_server(each) for each in context.mcp_servers],
            "skills_dir": context.skills_dir,
        }
        await sandbox.exec(["mkdir", "-p", "-m", "777", _LOGS], user="root", timeout_s=_LOOKUP_TIMEOUT_S)
        try:
            async with asyncio.timeout(self.setup_timeout_s):
                await bridge.ask("make_agent", **made)
                await served.until_ended(bridge.ask("set_up"))
        except Refused as error:
            hint = "; it installs itself in the sandbox, which mostly needs a network" if self.inside else ""
            raise AgentUnavailable(f"agent {self.name} could not be set up{hint}: {_said(error)}") from error
        except TimeoutError:
            raise AgentUnavailable(
                f"agent {self.name} was not set up within {self.setup_timeout_s:g} s "
                "(agent_options.setup_timeout_s)"
            ) from None

    async def _work(self, bridge: Bridge, served: Served, steps: Steps, context: AgentContext) -> AgentResult:
        from proctor.sandbox.harbor.line import Refused

        try:
            await served.until_ended(bridge.ask("work", instruction=context.instruction))
        except Refused as error:
            raise AgentFailed(f"{self.name}: {_said(error)}") from error
        steps.read()
        return AgentResult(usage={"steps": steps.count, "tool_calls": context.trajectory.tool_calls})

    def _own_options(self, context: AgentContext) -> dict[str, Any]:
        if self.agent != "terminus-2":
            return {}
        return {
            "record_terminal_session": False,
            "api_base": context.access.base_urls.get(_CLIENTS[self.api], ""),
        }

    def _model(self, model: str | None) -> str | None:
        """As Harbor's agents want it: the client's provider, then the name."""
        return model and f"{_CLIENTS[self.api]}/{model.partition('/')[2] or model}"


class Terminus2(HarborAgent):
    """Terminus 2 by the makers of Terminal-Bench."""

    name = "terminus-2"
    agent = "terminus-2"
    apis = ("chat",)
    inside = False
    api_options = (
        *HarborAgent.api_options,
        "max_turns",
        "temperature",
        "parser_name",
        "reasoning_effort",
        "max_thinking_tokens",
        "enable_summarize",
        "proactive_summarization_threshold",
        "tmux_pane_width",
        "tmux_pane_height",
    )
    """Those of Harbor's class that are numbers, switches or words; others name files of this machine, other
    classes, or addresses for the process out here."""


def named(name: str) -> type[HarborAgent]:
    """The class for `harbor:NAME`."""
    agent = name.removeprefix(PREFIX)
    about = {
        "name": name,
        "agent": agent,
        "apis": (_APIS[agent],) if agent in _APIS else () if agent in _WITHOUT_MODEL else API_NAMES,
        "inside": agent not in _OUTSIDE,
        "needs_model": agent not in _WITHOUT_MODEL,
        "__doc__": f"{agent} of Harbor.",
    }
    return type("HarborAgent", (HarborAgent,), about)


def _server(server: McpServer) -> dict[str, Any]:
    return {
        "name": server.name,
        "transport": server.transport,
        "url": server.url,
        "command": server.command,
        "args": list(server.args),
    }


def _said(error: Refused) -> str:
    """The error of Harbor's side, whose beginning tells most."""
    return f"{error.kind}: {error}"[:_MOST_SAID]
