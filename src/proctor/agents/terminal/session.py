"""A shell in the sandbox that stays between commands, on a terminal of its own.

The terminal is held by a small static program of ours, so that every image has the same one. The shell's
prompt is a mark with the exit code: a command has ended when the mark has come.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

from proctor.agents.base import AgentContext, AgentFailed, AgentUnavailable, BudgetExhausted
from proctor.agents.terminal.program import START_S, TIME_LIMIT, NotStarted, Program, Question, start
from proctor.agents.terminal.screen import Screen
from proctor.agents.terminal.window import Window
from proctor.errors import SandboxError
from proctor.sandbox.base import Sandbox

LOG = "agent.txt"
_SEPARATOR = "\x1e"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What came back, and whether the shell waits for a command again."""

    text: str
    exit_code: int | None = None
    """Of the command that has ended; None while one is at work."""
    full_screen: bool = False
    restarted: bool = False
    """The shell had ended, and another one was started."""


class Session:
    """One shell. What it prints goes to the log as it comes, whole; `Seen` has what fits into a window."""

    def __init__(self, sandbox: Sandbox, context: AgentContext) -> None:
        self._sandbox, self._context = sandbox, context
        self._name = secrets.token_hex(6)
        self._marks = re.compile(rf"{_SEPARATOR}{self._name}-(\d+){_SEPARATOR}(\d+){_SEPARATOR}".encode())
        self._number = 0
        self._output_bytes = 0
        self._screen = Screen()
        self._program: Program | None = None
        self.running = False
        """Whether a command is at work."""

    async def open(self) -> None:
        """Start the shell; AgentUnavailable says why it cannot be."""
        try:
            await self._start()
        except NotStarted as error:
            raise AgentUnavailable(f"agent terminal cannot start a shell in the sandbox: {error}") from error
        except SandboxError as error:
            raise AgentUnavailable(f"agent terminal cannot start a shell: {error}") from error

    async def run(self, command: str, wait_s: float) -> Seen:
        """Run a command of any length, and wait for its end or until the time is over."""
        self._context.log(LOG, f"$ {command}\n".encode(errors="replace"))
        self._number += 1
        self._screen = Screen()
        self.running = True
        script = command.encode(errors="replace") + b"\n"
        return await self._seen(*await self._ask(script, wait_s, f" _proctor={self._number}; . "))

    async def type(self, keys: bytes, wait_s: float) -> Seen:
        """Press keys, and see what comes of it. Without keys: wait."""
        self.running = self.running or bool(keys)
        return await self._seen(*await self._ask(keys, wait_s))

    async def close(self) -> None:
        """Leave the terminal. Jobs of the shell go on until the sandbox ends them."""
        program, self._program = self._program, None
        if program:
            await program.close()

    async def _start(self) -> None:
        await self.close()
        self._program = await start(self._sandbox, self._context)
        self.running, self._screen = False, Screen()
        # A file that the task's commands read may set another prompt; bash sets it again each time.
        mark = f"{_SEPARATOR}{self._name}-$_proctor{_SEPARATOR}$?{_SEPARATOR}"
        quoted = mark.replace("$", r"\$")
        script = f"_proctor={self._number}; PS1='{mark}'; PROMPT_COMMAND=\"PS1='{quoted}'\"\n"
        if (await self._ask(script.encode(), START_S, " . ", quiet=True))[0]:
            raise NotStarted("the shell does not answer")

    async def _ask(
        self, text: bytes, wait_s: float, line: str = "", *, quiet: bool = False
    ) -> tuple[int, Window]:
        assert self._program
        window = Window()

        def hear(data: bytes) -> None:
            if quiet:
                return
            window.add(data)
            self._output_bytes += len(data)
            if self._output_bytes <= self._context.limits.output_bytes:
                self._context.log(LOG, self._marks.sub(b"", data))

        mark = f"{_SEPARATOR}{self._name}-{self._number}{_SEPARATOR}"
        code = await self._program.ask(Question(text=text, line=line, mark=mark, wait_s=wait_s), hear)
        if self._output_bytes > self._context.limits.output_bytes:
            raise BudgetExhausted(f"more than {self._context.limits.output_bytes} bytes of output")
        return code, window

    async def _seen(self, code: int, window: Window) -> Seen:
        assert self._program
        marks = self._marks.findall(window.tail)
        # Messages of the shell name the file that it was told to read, which nobody wrote.
        text = window.shown(self._screen, self._marks).replace(f"{self._program.script}: ", "")
        full = self._screen.full
        if not full:
            self._screen = Screen()
        if code == 0:
            self.running = False
            return Seen(text=text, exit_code=int(marks[-1][1]) if marks else 0)
        if code == TIME_LIMIT:
            return Seen(text=text, full_screen=full)
        try:
            await self._start()
        except NotStarted as error:
            message = f"the shell in the sandbox ended and cannot be started again: {error}"
            raise AgentFailed(message) from error
        return Seen(text=text, restarted=True)
