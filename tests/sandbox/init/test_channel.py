"""Packets between a controller and its inits, without any."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest
from tests.sandbox.init.wire import receive, reply

from proctor.errors import HostError, SandboxError
from proctor.sandbox.init.channel import Channel
from proctor.sandbox.init.session import Session
from proctor.sandbox.init.streams import Streams, input_descriptor

pytestmark = pytest.mark.anyio


@pytest.fixture
async def ends(anyio_backend):
    """A channel, the other end, and what came and went."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.settimeout(10)
    messages = asyncio.Queue()
    channel = Channel(
        ours, lambda words, fds: messages.put_nowait((words, fds)), lambda: messages.put_nowait(None)
    )
    yield channel, theirs, messages
    channel.close()
    theirs.close()


async def test_messages_and_descriptors_go_both_ways(ends):
    channel, theirs, messages = ends
    reader, writer = os.pipe()
    channel.send(["Xid", "aword"], [writer])
    message = receive(theirs)
    assert (message.kind, message.ident, message.one("a"), message.one("z", "no")) == (
        "X",
        "id",
        "word",
        "no",
    )
    os.write(message.fds[0], b"x")
    assert os.read(reader, 1) == b"x"
    message.close()
    socket.send_fds(theirs, [b"l 1 ok"], [writer])
    words, fds = await messages.get()
    assert words == ["l", "1", "ok"]
    for fd in (reader, writer, *fds):
        os.close(fd)


async def test_a_long_message_travels_in_a_descriptor(ends):
    channel, theirs, _ = ends
    channel.send(["X1", "a" + "x" * 500_000])
    assert len(receive(theirs).one("a")) == 500_000


async def test_a_full_socket_holds_messages_back_in_order(ends):
    channel, theirs, _ = ends
    null = os.open(os.devnull, os.O_RDONLY)
    for number in range(300):
        channel.send([f"X{number}", "a" + "x" * 5000], [null])
    os.close(null)
    received = []
    for _ in range(300):
        await asyncio.sleep(0)
        message = await asyncio.to_thread(receive, theirs)
        message.close()
        received.append(message.ident)
    assert received == [str(number) for number in range(300)]


async def test_the_end_of_the_other_side_is_noticed_once(ends):
    channel, theirs, messages = ends
    theirs.close()
    assert await messages.get() is None
    channel.send(["X"])
    channel.close()
    assert channel.closed


async def test_closing_lets_go_of_what_waits(ends):
    channel, _, _ = ends
    before = len(list(Path("/proc/self/fd").iterdir()))
    null = os.open(os.devnull, os.O_RDONLY)
    for _ in range(300):
        channel.send(["X", "a" + "x" * 5000], [null])
    os.close(null)
    channel.close()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


async def test_a_reader_that_has_gone_is_no_error():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.close()
    reply(ours, "d", 1)
    assert receive(ours) is None
    ours.close()


async def test_an_init_that_never_gets_ready_or_ends_early_is_an_error():
    session = Session("s")
    with session.open(), pytest.raises(SandboxError, match="not ready after"):
        await session.ready(0.01)
    session.close()
    session = Session("s")
    session.open().close()
    with pytest.raises(SandboxError, match="ended while it was in use"):
        await session.ready(10)
    session = Session("s")
    with session.open() as theirs:
        theirs.send(b"e cannot mount: no")
        with pytest.raises(SandboxError, match="cannot mount: no"):
            await session.ready(10)
    session.close()


async def test_a_tree_that_does_not_die_takes_everything_with_it(monkeypatch):
    monkeypatch.setattr("proctor.sandbox.init.session._KILL_GRACE_S", 0.05)
    session = Session("s")
    with session.open() as theirs:
        theirs.settimeout(10)
        running = asyncio.ensure_future(
            session.run(["x"], env={}, cwd="/", user="root", timeout_s=0.01, stdin=b"")
        )
        kinds = []
        while "C" not in kinds:
            message = await asyncio.to_thread(receive, theirs)
            kinds.append(message.kind)
            message.close()
        assert kinds == ["X", "K", "C"]
        theirs.send(b"d 1 137 1 5 6 7 8")
        result = await running
    assert result.timed_out
    session.close()


async def test_a_port_that_is_taken_inside_is_reported_and_late_answers_are_dropped():
    session = Session("s")
    with session.open() as theirs:
        listening = asyncio.ensure_future(session.listen(80))
        await asyncio.to_thread(receive, theirs)
        theirs.send(b"l 1 in use")
        with pytest.raises(SandboxError, match="in use"):
            await listening
        null = os.open(os.devnull, os.O_RDONLY)
        socket.send_fds(theirs, [b"l 1 ok"], [null])
        os.close(null)
        ending = asyncio.ensure_future(session.run(["x"], env={}, cwd="/", user="root"))
        (await asyncio.to_thread(receive, theirs)).close()
        theirs.send(b"d 2 3 0 5 6 7 8")
        assert (await ending).exit_code == 3
    session.close()
    assert not session.alive


async def test_input_is_a_pipe_when_small_and_a_file_when_large():
    for size in (0, 100, 200_000):
        fd = input_descriptor(b"x" * size)
        data = b""
        while piece := os.read(fd, 1 << 20):
            data += piece
        assert len(data) == size
        os.close(fd)


async def test_a_flood_is_slowed_down_and_let_through(monkeypatch):
    monkeypatch.setattr("proctor.sandbox.init.streams._FREE_BYTES", 1 << 17)
    monkeypatch.setattr("proctor.sandbox.init.streams._PAUSE_BYTES", 1 << 16)
    monkeypatch.setattr("proctor.sandbox.init.streams._PAUSE_S", 0.001)
    seen = []
    streams = Streams(lambda name, data: seen.append(len(data)), 10)
    writer = os.dup(streams.out.writer)
    streams.out.started()
    streams.err.started()
    await asyncio.to_thread(lambda: os.write(writer, b"y" * 600_000) and os.close(writer))
    async with asyncio.timeout(10):
        while streams.out.open:  # noqa: ASYNC110 - the end of a pipe has no event
            await asyncio.sleep(0.001)
    assert sum(seen) == 600_000
    assert streams.out.drain() == b"y" * 10
    assert streams.paused_s > 0
    streams.close()


async def test_an_init_that_does_not_end_a_command_is_the_hosts_failure(monkeypatch):
    for name in ("_KILL_GRACE_S", "_STALLED_S"):
        monkeypatch.setattr(f"proctor.sandbox.init.session.{name}", 0.01)
    session = Session("s")
    with session.open():
        with pytest.raises(HostError, match="sandbox s does not answer"):
            await session.run(["sleep"], env={}, cwd="/", user="root", timeout_s=0.01)
        session.close()
