"""The small static program that holds a terminal inside, and the two ways to ask it something.

Where a sandbox passes descriptors it is run out of memory and asked over a line that lasts: a command then
makes no process but those of the shell, and nothing of ours is to be found inside. Elsewhere it is copied in,
and each question is a command.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from proctor.agents.base import AgentContext, AgentFailed
from proctor.agents.terminal.screen import COLUMNS, ROWS
from proctor.errors import SandboxError
from proctor.sandbox.base import Before, ExecResult, Line, Sandbox, dial, exec_after
from proctor.sandbox.programs import init_program

if TYPE_CHECKING:
    import asyncio

FOLDER = "/var/tmp/proctor_terminal"  # noqa: S108 - inside the sandbox
TIME_LIMIT = 124
GONE = 125
START_S = 30.0
_NOT_RUN = (126, 127)
_PROGRAM, _SOCKET = f"{FOLDER}/terminal", f"{FOLDER}/socket"
_GRACE_S = 30.0
_ENVIRONMENT = {"TERM": "xterm", "PAGER": "cat", "GIT_PAGER": "cat", "MANPAGER": "cat"}
_SHELLS = ("bash", "--noprofile", "--norc", "--noediting", "-i", ",", "sh", "-i")
_PREPARE = 'chmod 1777 "$1" && rm -f "$2"'
_QUESTION = struct.Struct("=IIIIq")
_ANSWER = struct.Struct("=cII")
_LONGEST_PATH = 64
_STEP_BYTES = 128
"""What a piece of an answer counts as beside its size: a flood of small ones must be slowed down too."""


class NotStarted(AgentFailed):
    """The program, or a shell on its terminal, cannot be started; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is typed, and what is waited for."""

    text: bytes
    line: str = ""
    """The text is a script, and this is typed with the script's path behind it."""
    mark: str
    """Digits and its last character behind it end the question."""
    wait_s: float


class Program(Protocol):
    """A terminal inside, with a shell on it."""

    script: str
    """The path under which the shell reads scripts; known once something was asked."""

    async def ask(self, question: Question, hear: Callable[[bytes], None]) -> int:
        """0 when the mark has come, TIME_LIMIT when it has not; anything else: the terminal is gone."""

    async def close(self) -> None:
        """Remove what was copied in. Jobs of the shell go on until the sandbox ends them."""


async def start(sandbox: Sandbox, context: AgentContext) -> Program:
    """Start it with a shell; NotStarted says why that is impossible."""
    options: dict[str, Any] = {
        "env": {**_ENVIRONMENT, **context.env},
        "cwd": context.workdir,
        "user": context.user,
        "timeout_s": START_S,
    }
    dialled = await dial(sandbox, init_program(), _opening("-"), **options)
    if dialled:
        result, line = dialled
        if result.exit_code == 0 and not result.timed_out:
            return _OverLine(line)
        line.close()
        # A kernel may be told to run nothing out of memory.
        if result.exit_code not in _NOT_RUN:
            raise NotStarted(_why(result))
    return await _ByCommands.started(sandbox, context.user, options)


def _opening(where: str) -> list[str]:
    return ["terminal", "open", where, str(COLUMNS), str(ROWS), *_SHELLS]


def _why(result: ExecResult) -> str:
    said = (result.stdout + result.stderr).decode(errors="replace").strip()
    return f"exit code {result.exit_code}: {said}"


class _OverLine:
    """Questions and answers on one socket. The inside may write anything to it, and harms but itself."""

    def __init__(self, line: Line) -> None:
        self.script = ""
        self._line = line
        self._number = 0
        self._held = bytearray()
        self._left = 0
        """How many bytes of output are still to come before the next answer."""
        self._hear: Callable[[bytes], None] | None = None
        self._over: asyncio.Future[int] | None = None
        line.listen(self._take)

    async def ask(self, question: Question, hear: Callable[[bytes], None]) -> int:
        """See `Program`."""
        import asyncio  # a list of the agents needs none

        self._number += 1
        mark, line = question.mark.encode(), question.line.encode()
        limit_ms = int(question.wait_s * 1000)
        head = _QUESTION.pack(self._number, len(mark), len(line), len(question.text), limit_ms)
        self._over = asyncio.get_running_loop().create_future()
        self._hear = hear
        self._line.listen(self._take)
        self._line.send(head + mark + line + question.text)
        try:
            async with asyncio.timeout(question.wait_s + _GRACE_S):
                return await self._over
        except TimeoutError:
            return TIME_LIMIT
        finally:
            self._hear = None

    async def close(self) -> None:
        """See `Program`: nothing was copied."""
        self._line.close()

    def _take(self, data: bytes) -> None:
        if not data:
            self._end(GONE)
            return
        self._held += data
        while self._held and self._step():
            self._line.charge(_STEP_BYTES)

    def _step(self) -> bool:
        """Understand what is next; False when more of it has to come first."""
        if self._left:
            part = bytes(self._held[: self._left])
            del self._held[: self._left]
            self._left -= len(part)
            if self._hear:
                self._hear(part)
            return True
        if not self.script:
            path, found, _ = self._held.partition(b"\n")
            if len(path) > _LONGEST_PATH:
                self._line.close()
                return False
            if found:
                self.script = path.decode(errors="replace")
                del self._held[: len(path) + 1]
            return bool(found)
        if len(self._held) < _ANSWER.size:
            return False
        kind, number, value = _ANSWER.unpack_from(self._held)
        del self._held[: _ANSWER.size]
        if kind == b"o":
            self._left = value
        elif kind != b"e":
            self._line.close()  # whoever wrote this is not our program
            return False
        elif number == self._number:
            self._end(value)
        return True

    def _end(self, code: int) -> None:
        if self._over and not self._over.done():
            self._over.set_result(code)


class _ByCommands:
    """A program that was copied in, and one command for each question."""

    def __init__(self, sandbox: Sandbox, user: str | None, script: str) -> None:
        self._sandbox, self._user = sandbox, user
        self.script = script

    @classmethod
    async def started(cls, sandbox: Sandbox, user: str | None, options: dict[str, Any]) -> _ByCommands:
        """One with a shell on its terminal."""
        copies = Before(copies=[(init_program(), _PROGRAM)])
        prepare = ["/bin/sh", "-c", _PREPARE, "sh", FOLDER, _SOCKET]
        made = await exec_after(sandbox, copies, prepare, user="root", timeout_s=START_S)
        if made.exit_code:
            raise NotStarted(f"{FOLDER} cannot be made: {_why(made)}")
        result = await sandbox.exec([_PROGRAM, *_opening(_SOCKET)], keep_bytes=4096, **options)
        if result.exit_code or result.timed_out:
            raise NotStarted(_why(result))
        return cls(sandbox, user, result.stdout.decode(errors="replace").strip())

    async def ask(self, question: Question, hear: Callable[[bytes], None]) -> int:
        """See `Program`."""

        def on_output(stream: Literal["stdout", "stderr"], data: bytes) -> None:
            if stream == "stdout":
                hear(data)

        limit_ms = str(int(question.wait_s * 1000))
        words = [_PROGRAM, "terminal", "talk", _SOCKET, limit_ms, question.mark]
        result = await self._sandbox.exec(
            [*words, question.line] if question.line else words,
            user=self._user,
            stdin=question.text,
            timeout_s=question.wait_s + _GRACE_S,
            on_output=on_output,
            keep_bytes=4096,
        )
        return TIME_LIMIT if result.timed_out else result.exit_code

    async def close(self) -> None:
        """See `Program`."""
        with suppress(SandboxError):
            await self._sandbox.exec(["rm", "-rf", FOLDER], user="root", timeout_s=START_S)
