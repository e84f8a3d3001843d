"""A shell in the sandbox that stays between commands, on a terminal of its own.

The terminal is held by a small static program that is copied in, so that every image has the same one. The
shell's prompt is a mark with the exit code: a command has ended when the mark has come.
"""

from __future__ import annotations

import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from proctor.agents.base import AgentContext, AgentFailed, AgentUnavailable, BudgetExhausted
from proctor.agents.terminal.screen import COLUMNS, ROWS, Screen
from proctor.agents.terminal.window import Window
from proctor.errors import SandboxError
from proctor.sandbox.base import Before, ExecResult, Sandbox, exec_after
from proctor.sandbox.programs import init_program

LOG = "agent.txt"
FOLDER = "/var/tmp/proctor_terminal"  # noqa: S108 - inside the sandbox
_PROGRAM, _SOCKET, _SCRIPT = f"{FOLDER}/terminal", f"{FOLDER}/socket", f"{FOLDER}/command"
_START_S = 30.0
_GRACE_S = 30.0
_TIME_LIMIT = 124
_ENVIRONMENT = {"TERM": "xterm", "PAGER": "cat", "GIT_PAGER": "cat", "MANPAGER": "cat"}
_OPEN = """\
shell=sh
command -v bash >/dev/null && shell='bash --noprofile --norc --noediting'
exec "$1" terminal open "$2" "$3" "$4" $shell -i
"""
_PREPARE = 'chmod 1777 "$1" && rm -f "$2" "$3"'
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
        self.running = False
        """Whether a command is at work."""

    async def open(self) -> None:
        """Start the shell; AgentUnavailable says why it cannot be."""
        try:
            problem = await self._start()
        except SandboxError as error:
            raise AgentUnavailable(f"agent terminal cannot start a shell: {error}") from error
        if problem:
            raise AgentUnavailable(f"agent terminal cannot start a shell in the sandbox: {problem}")

    async def run(self, command: str, wait_s: float) -> Seen:
        """Run a command of any length, and wait for its end or until the time is over."""
        self._context.log(LOG, f"$ {command}\n".encode(errors="replace"))
        self._number += 1
        self._screen = Screen()
        self.running = True
        line = f" _proctor={self._number}; . {_SCRIPT}"
        return await self._seen(
            await self._talk(command.encode(errors="replace") + b"\n", wait_s, _SCRIPT, line)
        )

    async def type(self, keys: bytes, wait_s: float) -> Seen:
        """Press keys, and see what comes of it. Without keys: wait."""
        self.running = self.running or bool(keys)
        return await self._seen(await self._talk(keys, wait_s))

    async def close(self) -> None:
        """Remove what was copied in. Jobs of the shell go on until the sandbox ends them."""
        with suppress(SandboxError):
            await self._sandbox.exec(["rm", "-rf", FOLDER], user="root", timeout_s=_START_S)

    # The program inside

    async def _start(self) -> str:
        """Why it cannot be started; empty when it has been."""
        made = await exec_after(
            self._sandbox,
            Before(copies=[(init_program(), _PROGRAM)]),
            ["/bin/sh", "-c", _PREPARE, "sh", FOLDER, _SOCKET, _SCRIPT],
            user="root",
            timeout_s=_START_S,
        )
        if made.exit_code:
            return f"{FOLDER} cannot be made: {_said(made)}"
        started = await self._sandbox.exec(
            ["/bin/sh", "-c", _OPEN, "sh", _PROGRAM, _SOCKET, str(COLUMNS), str(ROWS)],
            env={**_ENVIRONMENT, **self._context.env},
            cwd=self._context.workdir,
            user=self._context.user,
            timeout_s=_START_S,
            keep_bytes=4096,
        )
        if started.exit_code or started.timed_out:
            return f"exit code {started.exit_code}: {_said(started)}"
        self.running, self._screen = False, Screen()
        # A file that the task's commands read may set another prompt; bash sets it again each time.
        mark = f"{_SEPARATOR}{self._name}-$_proctor{_SEPARATOR}$?{_SEPARATOR}"
        quoted = mark.replace("$", r"\$")
        script = f"_proctor={self._number}; PS1='{mark}'; PROMPT_COMMAND=\"PS1='{quoted}'\"\n"
        result, _ = await self._talk(script.encode(), _START_S, _SCRIPT, f" . {_SCRIPT}", quiet=True)
        return "" if result.exit_code == 0 else "the shell does not answer"

    async def _talk(
        self, keys: bytes, wait_s: float, file: str = "", line: str = "", *, quiet: bool = False
    ) -> tuple[ExecResult, Window]:
        window = Window()

        def on_output(stream: Literal["stdout", "stderr"], data: bytes) -> None:
            if stream == "stderr" or quiet:
                return
            window.add(data)
            self._output_bytes += len(data)
            if self._output_bytes <= self._context.limits.output_bytes:
                self._context.log(LOG, self._marks.sub(b"", data))

        mark = f"{_SEPARATOR}{self._name}-{self._number}{_SEPARATOR}"
        result = await self._sandbox.exec(
            [
                _PROGRAM,
                "terminal",
                "talk",
                _SOCKET,
                str(int(wait_s * 1000)),
                mark,
                *filter(None, (file, line)),
            ],
            user=self._context.user,
            stdin=keys,
            timeout_s=wait_s + _GRACE_S,
            on_output=on_output,
            keep_bytes=4096,
        )
        if self._output_bytes > self._context.limits.output_bytes:
            raise BudgetExhausted(f"more than {self._context.limits.output_bytes} bytes of output")
        return result, window

    async def _seen(self, came: tuple[ExecResult, Window]) -> Seen:
        result, window = came
        marks = self._marks.findall(window.tail)
        # Messages of the shell name the file that it was told to read, which nobody wrote.
        text = window.shown(self._screen, self._marks).replace(f"{_SCRIPT}: ", "")
        full = self._screen.full
        if not full:
            self._screen = Screen()
        if result.exit_code == 0 and not result.timed_out:
            self.running = False
            return Seen(text=text, exit_code=int(marks[-1][1]) if marks else 0)
        if result.timed_out or result.exit_code == _TIME_LIMIT:
            return Seen(text=text, full_screen=full)
        if problem := await self._start():
            raise AgentFailed(f"the shell in the sandbox ended and cannot be started again: {problem}")
        return Seen(text=text, restarted=True)


def _said(result: ExecResult) -> str:
    return (result.stdout + result.stderr).decode(errors="replace").strip()
