"""What a program on a line says is understood however it is cut, and what it should not say harms nobody."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from proctor.agents.terminal.program import _ANSWER, _QUESTION, GONE, Question, _OverLine
from proctor.sandbox.init.line import Line

pytestmark = pytest.mark.anyio
PATH = b"/proc/5/fd/4\n"
WAITING = Question(text=b"text", line=" . ", mark="mark", wait_s=60)


class Inside:
    """The other end."""

    def __init__(self, theirs: socket.socket, line: Line) -> None:
        self.theirs, self.line = theirs, line
        self.program = _OverLine(line)
        self.heard = bytearray()

    async def ask(self, *said: bytes) -> int:
        """Ask, and say that to it, piece by piece."""
        asking = asyncio.create_task(self.program.ask(WAITING, self.heard.extend))
        loop = asyncio.get_running_loop()
        for each in said:
            await loop.sock_sendall(self.theirs, each)
        async with asyncio.timeout(60):
            return await asking


@pytest.fixture
async def inside(anyio_backend: str) -> AsyncIterator[Inside]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    line = Line(ours, lambda _: None)
    with theirs:
        yield Inside(theirs, line)
    line.close()


def output(text: bytes) -> bytes:
    return _ANSWER.pack(b"o", 1, len(text)) + text


async def test_answers_are_understood_byte_by_byte(inside):
    said = PATH + output(b"one\n") + output(b"two\n") + _ANSWER.pack(b"e", 1, 124)
    assert await inside.ask(*(bytes([each]) for each in said)) == 124
    assert inside.heard == b"one\ntwo\n"
    assert inside.program.script == "/proc/5/fd/4"
    question = inside.theirs.recv(1000)
    assert _QUESTION.unpack_from(question) == (1, 4, 3, 4, 60_000)
    assert question[_QUESTION.size :] == b"mark . text"


async def test_the_end_of_an_earlier_question_does_not_end_a_later_one(inside):
    assert await inside.ask(PATH + _ANSWER.pack(b"e", 1, 0)) == 0
    said = _ANSWER.pack(b"e", 1, 0) + output(b"late") + _ANSWER.pack(b"e", 2, 124)
    assert await inside.ask(said) == 124
    assert inside.heard == b"late"


@pytest.mark.parametrize("said", [b"x" * 1000, PATH + b"x" * 9], ids=["no path", "no answer"])
async def test_what_is_no_answer_ends_the_line(inside, said):
    assert await inside.ask(said) == GONE
    assert not inside.line.open
    assert await inside.ask() == GONE


async def test_a_program_that_has_gone_is_noticed(inside):
    asking = asyncio.create_task(inside.ask(PATH + output(b"last")))
    await asyncio.get_running_loop().sock_recv(inside.theirs, 1)
    inside.theirs.shutdown(socket.SHUT_WR)
    assert await asking == GONE
    assert inside.heard == b"last"


async def test_a_flood_of_small_answers_is_slowed_down(inside):
    piece = output(b"") * 10_000
    assert await inside.ask(PATH, *[piece] * 20, _ANSWER.pack(b"e", 1, 0)) == 0
    assert inside.line.paused_s > 0
