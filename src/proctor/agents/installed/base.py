"""What all installed agents share: their folder is bound into the sandbox, their output read as it comes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from proctor.agents.base import AgentContext, AgentResult, AgentTimeout, BudgetExhausted
from proctor.agents.installed.folders import find, place_of
from proctor.agents.installed.recipes import Recipe
from proctor.agents.shell import LONGEST_ARGUMENT
from proctor.agents.trajectory import Trajectory
from proctor.errors import SandboxError
from proctor.settings import load_settings

if TYPE_CHECKING:
    from proctor.model.task import Task
    from proctor.sandbox.base import ExecResult, Sandbox

INSIDE = "/opt/proctor/agents"
"""Where agents are in a sandbox."""
HOME = "/var/tmp/proctor-agent"  # noqa: S108 - inside the sandbox
"""Where agents keep their own settings and sessions; removed when they end."""
INSTRUCTION = f"{HOME}/instruction.md"
_LOG = "agent.txt"
_LOOKUP_TIMEOUT_S = 60.0
_LEAVE_S = 30.0
_MOST_RESULT = 64 << 20
_MOST_TEXT = 1 << 20
_MOST_LINE = 8 << 20
"""A longer line is no event; putting it together piece by piece would cost more and more."""
_LOOKUP = 'if [ -n "$1" ] && ! [ -e "$1" ]; then exit 125; fi; shift; exec "$@"'
_START = """\
mkdir -p "$PROCTOR_AGENT_HOME"
[ -w "${HOME:-/nowhere}" ] || export HOME="$PROCTOR_AGENT_HOME"
"""
Event = Mapping[str, Any]


class Steps:
    """Makes steps of a trajectory from what an agent tells: what it says and calls, then what comes of it."""

    def __init__(self, trajectory: Trajectory) -> None:
        self._trajectory = trajectory
        self._step: dict[str, Any] | None = None
        self.count = 0
        self.used: dict[str, float] = {}
        """The sums of the metrics."""
        self.state: dict[str, Any] = {}
        """For what an agent's reader has to remember."""

    def say(
        self,
        text: str = "",
        *,
        calls: Sequence[tuple[str, str, Any]] = (),
        metrics: Mapping[str, float] | None = None,
        reasoning: str = "",
        goes_on: bool = False,
    ) -> None:
        """The next step, or more of the last one; a call is (id, name, arguments)."""
        if goes_on and self._step is not None:
            self._step["message"] = "\n".join(filter(None, (self._step["message"], text)))
            self._step["reasoning"] = "\n".join(filter(None, (self._step["reasoning"], reasoning)))
        else:
            self.end()
            self.count += 1
            self._step = {"message": text, "tool_calls": [], "results": [], "reasoning": reasoning}
        self._step["tool_calls"] += [
            {
                "tool_call_id": each,
                "function_name": name,
                "arguments": dict(arguments) if isinstance(arguments, Mapping) else {"value": arguments},
            }
            for each, name, arguments in calls
        ]
        self.measure(metrics or {})

    def piece(self, text: str) -> None:
        """More of what the last step says."""
        if self._step is not None:
            self._step["message"] += text

    def result(self, call: str | None, text: str) -> None:
        """What came of a call of the last step."""
        if self._step is not None:
            self._step["results"].append((call, text))

    def measure(self, metrics: Mapping[str, float]) -> None:
        """What the last step used, by the agent's own account; added to what is known of it."""
        if self._step is not None and any(metrics.values()):
            known = self._step.setdefault("metrics", {})
            for name, value in metrics.items():
                known[name] = known.get(name, 0) + value
                self.used[name] = self.used.get(name, 0) + value

    def end(self) -> None:
        """Write the last step down."""
        if self._step is not None:
            self._trajectory.add("agent", **self._step)
            self._step = None


class InstalledAgent:
    """Runs a command-line agent that `proctor agents install` has put on this machine."""

    name: ClassVar[str]
    version: str
    """The version that was tried; the option `version` chooses another."""
    recipe: ClassVar[Recipe]
    apis: ClassVar[tuple[str, ...]]
    needs_model = True
    inside = True
    pins_model = True
    keeps_time = True
    api_options: ClassVar[tuple[str, ...]] = ("version", "args", "env")
    result_file: ClassVar[str] = ""
    """A file that the agent writes when it ends, for those that tell nothing while they work."""
    long_instruction: ClassVar[tuple[str, ...] | None] = None
    """What stands for an instruction that is too long for an argument: it is on the standard input, and in
    the file `INSTRUCTION`. None: the agent is told to read the file."""
    tells_events: ClassVar[bool] = True
    """Whether its output is JSON, a line each; if it is not, it becomes one step."""

    def __init__(
        self, *, version: str = "", args: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> None:
        if version:
            self.version = version
        self.args = tuple(args)
        self.env = dict(env or {})
        self._cache = load_settings().cache_dir
        place_of(self._cache, self.name, self.version)
        self._found: set[tuple[str, str | None]] = set()
        """Tasks in whose sandboxes it was seen to start; sandboxes of one task start alike."""

    # What each agent says of itself

    def arguments(self, instruction: str, model: str, context: AgentContext) -> Sequence[str]:
        """What follows the program's name; the instruction is part of it."""
        raise NotImplementedError

    def environment(self, model: str, context: AgentContext) -> Mapping[str, str]:
        """Its variables, beside those that the providers' clients read."""
        raise NotImplementedError

    def files(self, model: str, context: AgentContext) -> Mapping[str, str]:  # noqa: ARG002 - for others
        """Files below `HOME` that it reads: path → text."""
        return {}

    def read(self, event: Event, steps: Steps) -> None:
        """One line of its output, or its result file, which is JSON."""

    # What all do alike

    @property
    def folder(self) -> str:
        """Where it is inside."""
        return f"{INSIDE}/{self.name}"

    def binds(self) -> dict[str, Path]:
        """What its sandboxes show: path inside → folder of this machine, read-only."""
        if not find(self._cache, self.name, self.version):
            return {}
        return {self.folder: place_of(self._cache, self.name, self.version).absolute()}

    async def missing(self, task: Task, sandbox: Sandbox, model: str | None, context: AgentContext) -> str:  # noqa: ARG002 - as all agents
        """What this machine or the sandbox lacks; empty when the agent can start."""
        about = find(self._cache, self.name, self.version)
        if about is None:
            chosen = "" if self.version == type(self).version else f" --version {self.version}"
            return (
                f"agent {self.name} {self.version} is not installed on this machine: "
                f"run 'proctor agents install {self.name}{chosen}'"
            )
        place = task.digest, context.user
        if place in self._found:
            return ""
        looked = await sandbox.exec(
            ["/bin/sh", "-c", _LOOKUP, "sh", about.loader, *self.recipe.probe(self.folder)],
            env=context.env,
            user=context.user,
            timeout_s=_LOOKUP_TIMEOUT_S,
            keep_bytes=4096,
        )
        if looked.exit_code == 125:
            return (
                f"agent {self.name} needs the C library of '{about.loader}', which the image does not have; "
                "use one that is built on glibc (Debian, Ubuntu, Fedora), not on musl (Alpine)"
            )
        if looked.exit_code or looked.timed_out:
            said = (looked.stdout + looked.stderr).decode(errors="replace").strip()[-500:]
            return f"agent {self.name} cannot start in the sandbox (exit code {looked.exit_code}): {said}"
        self._found.add(place)
        return ""

    async def run(
        self,
        task: Task,  # noqa: ARG002 - the context holds what the agent may know
        sandbox: Sandbox,
        model: str | None,
        context: AgentContext,
    ) -> AgentResult:
        """Start the program with the instruction, and read what it tells until it ends."""
        name = (model or "").partition("/")[2] or model or ""
        steps = Steps(context.trajectory)
        lines = Lines(self, steps)
        instruction = context.instruction.encode()
        long = len(instruction) > LONGEST_ARGUMENT
        argv = [*self.recipe.argv(self.folder), *self._arguments(name, context, long=long), *self.args]
        script, texts = _START, []
        for number, (path, text) in enumerate(self.files(name, context).items(), 1):
            script += f'mkdir -p "$(dirname "{HOME}/{path}")" && printf %s "${{{number}}}" >"{HOME}/{path}"\n'
            texts.append(text)
        script += f"shift {len(texts)}\n" if texts else ""
        script += f'cat >{INSTRUCTION}\nexec "$@" <{INSTRUCTION}' if long else 'exec "$@" </dev/null'
        try:
            result = await sandbox.exec(
                ["/bin/sh", "-c", script, "sh", *texts, *argv],
                env={
                    **context.env,
                    **context.access.env,
                    "PROCTOR_AGENT_HOME": HOME,
                    **self.environment(name, context),
                    **self.env,
                },
                cwd=context.workdir,
                user=context.user,
                stdin=instruction if long else None,
                timeout_s=context.allowed_s,
                on_output=lines.output(context),
                keep_bytes=4096 if self.tells_events else _MOST_TEXT,
            )
            lines.end()
            if not (self.tells_events or self.result_file):
                steps.say(result.stdout.decode(errors="replace"))
            await self._leave(sandbox, steps, context)
        finally:
            steps.end()
        if lines.too_much:
            raise BudgetExhausted(f"more than {context.limits.output_bytes} bytes of output")
        if result.timed_out:
            raise AgentTimeout
        failed = f"{self.name} ended with exit code {result.exit_code}{_last_line(result)}"
        return AgentResult(
            exit_code=result.exit_code,
            usage={"steps": steps.count, "tool_calls": context.trajectory.tool_calls},
            notes=(failed,) if result.exit_code else (),
        )

    def _arguments(self, model: str, context: AgentContext, *, long: bool) -> list[str]:
        if not long:
            return list(self.arguments(context.instruction, model, context))
        mark = f"Your task is in the file {INSTRUCTION}: read all of it, and do what it says."
        given = self.arguments(mark, model, context)
        if self.long_instruction is None:
            return list(given)
        return [word for each in given for word in (self.long_instruction if mark in each else (each,))]

    async def _leave(self, sandbox: Sandbox, steps: Steps, context: AgentContext) -> None:
        """Read what it left, and remove it: not for long, whatever it has made of its folder."""
        import asyncio  # a list of the agents needs none

        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_S):
                await self._read_result(sandbox, steps)
                await sandbox.exec(["rm", "-rf", HOME], user=context.user, timeout_s=_LEAVE_S)

    async def _read_result(self, sandbox: Sandbox, steps: Steps) -> None:
        if not self.result_file:
            return
        with tempfile.TemporaryDirectory(prefix="proctor-agent-") as place:
            file = Path(place) / "result.json"
            try:
                await sandbox.download(self.result_file, file, max_bytes=_MOST_RESULT)
                self.read(json.loads(file.read_bytes()), steps)
            except (OSError, ValueError, SandboxError):
                return  # it ended before it wrote one; its log tells why


def _last_line(result: ExecResult) -> str:
    """What a program said last, for people."""
    lines = (result.stderr.strip() or result.stdout.strip()).decode(errors="replace").splitlines()
    return f": {lines[-1].strip()[:300]}" if lines else ""


class Lines:
    """Splits the output of an agent into events; what is not JSON is only logged."""

    def __init__(self, agent: InstalledAgent, steps: Steps) -> None:
        self._agent, self._steps = agent, steps
        self._rest = b""
        self._passes_over = False
        self._seen = 0
        self.too_much = False

    def output(self, context: AgentContext) -> Any:
        """What a sandbox calls with each piece."""

        def on_output(stream: Literal["stdout", "stderr"], data: bytes) -> None:
            self._seen += len(data)
            if self._seen > context.limits.output_bytes:
                self.too_much = True
                return
            context.log(_LOG, data)
            if stream == "stdout" and self._agent.tells_events:
                self._split(data)

        return on_output

    def _split(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if not self._passes_over:
                self._read(line)
            self._passes_over = False
        if len(self._rest) > _MOST_LINE:
            self._rest, self._passes_over = b"", True

    def end(self) -> None:
        """The last line need not end."""
        if not self._passes_over:
            self._read(self._rest)
        self._rest = b""

    def _read(self, line: bytes) -> None:
        try:
            event = json.loads(line)
            if isinstance(event, dict):
                self._agent.read(event, self._steps)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return  # another version may tell it differently; the log has the line


def text_of(content: Any) -> str:
    """The text of a content that is one, or a list of parts with texts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(
            str(each.get("text", "")) if isinstance(each, Mapping) else str(each) for each in content
        )
    return "" if content is None else json.dumps(content)
