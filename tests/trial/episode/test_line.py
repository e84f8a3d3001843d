"""The line to a program inside: nothing that comes back is trusted, and silence is explained."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest

from proctor.agents.base import BudgetExhausted
from proctor.errors import SandboxError
from proctor.sandbox.base import ExecResult, Sandbox
from proctor.trial.episode.line import Gone, Line

pytestmark = pytest.mark.anyio


class Inside:
    """A sandbox whose program is a function of the port it is given."""

    def __init__(self, answers: list[bytes] | None) -> None:
        self.answers = answers

    async def listen(self, port: int = 0) -> socket.socket:
        return socket.create_server(("127.0.0.1", port))

    async def exec(self, argv: list[str], **options: Any) -> ExecResult:
        if self.answers is None:
            return ExecResult(exit_code=127, stderr=b"python3: not found")
        port = int(argv[-1].partition("main(")[2].split(",")[0].rstrip(")"))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for answer in self.answers:
            await reader.readline()
            writer.write(answer)
            await writer.drain()
        writer.close()
        return ExecResult(exit_code=9)


async def opened(*answers: bytes, total_bytes: int = 10_000) -> Line:
    inside: Any = Inside(list(answers))
    line = Line(inside, max_bytes=1000, total_bytes=total_bytes)
    await line.open("program", env={}, log=lambda *_: None)
    return line


async def test_a_question_has_one_answer():
    line = await opened(b'{"a": [1, NaN]}\n')
    assert await line.ask({"call": "x"}) == {"a": [1, "NaN"]}
    with pytest.raises(Gone, match="its process ended with exit code 9"):
        await line.ask({"call": "x"})
    await line.close()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"{\n", "not JSON"),
        (b"[1]\n", "not a mapping"),
        (b"[" * 900 + b"\n", "not JSON"),
        (b'{"a": "' + b"x" * 2000 + b'"}\n', "more than 1,000 bytes"),
        (b'{"a": "\\ud800"}\n', "not text"),
        (b'{"a": 1', "exit code 9"),
        (b'{"a": ' + b"9" * 900 + b"}\n", ""),
    ],
)
async def test_an_answer_that_is_none_is_refused(answer: bytes, said: str):
    line = await opened(answer)
    if said:
        with pytest.raises(Gone, match=said):
            await line.ask({})
    else:
        assert json.dumps(await line.ask({}))
    await line.close()


async def test_all_answers_together_have_a_limit():
    line = await opened(b'{"a": 1}\n', b'{"a": 1}\n', total_bytes=10)
    await line.ask({})
    with pytest.raises(BudgetExhausted, match="larger than the output limit"):
        await line.ask({})
    await line.close()


async def test_a_sandbox_without_python_says_so():
    inside: Any = Inside(None)
    line = Line(inside, max_bytes=1, total_bytes=1)
    with pytest.raises(SandboxError, match=r"needs python3, .* exit code 127 python3: not found"):
        await line.open("program", env={}, log=lambda *_: None)
    await line.close()


async def test_a_program_that_never_calls_back_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("proctor.trial.episode.line._START_S", 0.05)
    monkeypatch.setattr("proctor.trial.episode.line._END_S", 0.05)

    class Silent(Inside):
        async def exec(self, argv: list[str], **options: Any) -> ExecResult:
            await asyncio.Event().wait()
            raise AssertionError

    silent: Sandbox = Silent([])  # type: ignore[assignment]
    line = Line(silent, max_bytes=1, total_bytes=1)
    with pytest.raises(SandboxError, match=r"did not start inside within 0\.05 s"):
        await line.open("program", env={}, log=lambda *_: None)
    await line.close()
