"""A lane as the controller holds it: one pass at a time, and every way in which that can end."""

from __future__ import annotations

import asyncio
import os
import socket
from binascii import a2b_base64
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from proctor.errors import SandboxError
from proctor.trial.forkserver.wire import Decoder, Message, WireError, encode

MAX_PASS_BYTES = 64 << 20
_CHUNK = 64 << 10


@dataclass(slots=True)
class Pass:
    """What came back from one pass over a point: rows, the child's report, the lane's account of its end."""

    rows: dict[int, Message] = field(default_factory=dict)
    aside: set[int] = field(default_factory=set)
    """Iterations during which the machine was disturbed."""
    report: Message | None = None
    exit: Message = field(default_factory=dict)
    broken: str = ""
    """Why the stream from the child could not be read to its end."""

    def good_rows(self) -> list[Message]:
        """The iterations that ended well, in order."""
        return [row for _, row in sorted(self.rows.items()) if "duration_s" in row]

    def take(self, message: Message) -> None:
        """One frame from the child. A row that comes twice is the same row."""
        if "row" in message and isinstance(message["row"], dict):
            index = int(message["row"].get("iteration", len(self.rows)))
            self.rows[index] = message["row"]
            if "aside" in message:
                self.aside.add(index)
        elif "report" in message:
            self.report = message["report"]


class FrameSocket:
    """A socket to a server or lane: frames in arrive as they come, and so does the end."""

    def __init__(self, sock: socket.socket, on_message: Callable[[Message], None]) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.closed = asyncio.get_running_loop().create_future()
        self._decoder = Decoder()
        self._on_message = on_message
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._readable)

    def _readable(self) -> None:
        try:
            data = self.sock.recv(_CHUNK)
            for message in self._decoder.feed(data):
                self._on_message(message)
        except BlockingIOError:
            return
        except (OSError, WireError):
            data = b""
        if not data:
            self._ended()

    def _ended(self) -> None:
        if self.sock.fileno() >= 0:
            self._loop.remove_reader(self.sock.fileno())
        if not self.closed.done():
            self.closed.set_result(None)

    async def send(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """Send one frame. SandboxError when the other side has gone."""
        data = encode(message)
        try:
            try:
                sent = socket.send_fds(self.sock, [data], fds) if fds else self.sock.send(data)
            except BlockingIOError:
                raise SandboxError("a lane does not accept requests") from None
            if sent < len(data):
                await self._loop.sock_sendall(self.sock, data[sent:])
        except OSError as error:
            raise SandboxError(f"the fork server has ended: {error}") from None

    def hang_up(self) -> None:
        """Say that nothing more will come; the other side clears up and ends."""
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Give the socket back."""
        self._ended()
        self.sock.close()


class LaneClient:
    """The controller's end of one lane of a server."""

    def __init__(self, sock: socket.socket, reader: int) -> None:
        self._control = FrameSocket(sock, self._answered)
        self._control.closed.add_done_callback(lambda _: self._decide(None))
        self._stream = Stream(reader, lambda: self._decide({}))
        self._over: asyncio.Future[Message | None] | None = None
        self._last = False

    @property
    def alive(self) -> bool:
        """Whether it can take another trial."""
        return not self._last and not self._control.closed.done()

    def _answered(self, message: Message) -> None:
        self._last = bool(message.get("last"))
        self._decide(message)

    def _decide(self, message: Message | None) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(message)

    async def run(self, request: Mapping[str, Any]) -> Pass:
        """One pass over a point. SandboxError when the lane is lost; cancelled, all of it is killed."""
        done = Pass()
        self._over = asyncio.get_running_loop().create_future()
        try:
            self._stream.begin(done)
            await self._control.send({"trial": request})
            await self._finish(done, await self._over)
        except BaseException:
            await self.end()
            raise
        return done

    async def _finish(self, done: Pass, answer: Message | None) -> None:
        """Complete the pass with the lane's report, or with the reason why there is none."""
        if answer and "exit" in answer:
            done.exit = answer["exit"]
            self._stream.drain()
        if self._stream.broken:
            done.broken = self._stream.broken
            await self.end()
            return
        if answer is None:
            raise SandboxError("the fork server's lane was lost during the trial")
        if "refused" in answer:
            raise SandboxError(f"the machine refused the trial: {answer['refused']}")
        if "backlog" in done.exit:
            for message in Decoder().feed(a2b_base64(done.exit["backlog"])):
                done.take(message)

    def hang_up(self) -> None:
        """Make the lane end everything it runs, and itself."""
        self._control.hang_up()

    def close(self) -> None:
        """Give the descriptors back."""
        self._control.close()
        self._stream.close()

    async def end(self) -> None:
        """Hang up and wait until the lane has killed what it ran and is gone."""
        self._control.hang_up()
        await asyncio.wait({self._control.closed}, timeout=10)
        self.close()


class Stream:
    """What the children of a lane send, one after another; bounded for each."""

    def __init__(self, reader: int, on_broken: Callable[[], None]) -> None:
        os.set_blocking(reader, False)
        self._reader = reader
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(reader, self._readable)
        self.begin(Pass())
        self.broken = ""
        """Why nothing more can be read, when it cannot."""

    def begin(self, done: Pass) -> None:
        """Another child will write; what it sends is for this pass."""
        self._done = done
        self._decoder = Decoder(limit_bytes=MAX_PASS_BYTES)

    def _readable(self) -> bool:
        """Read once; False when there is nothing more for now, or ever."""
        try:
            data = os.read(self._reader, _CHUNK)
            for message in self._decoder.feed(data):
                self._done.take(message)
        except BlockingIOError:
            return False
        except (WireError, OSError, ValueError) as error:
            self.broken = str(error) or type(error).__name__
            self._loop.remove_reader(self._reader)
            self._on_broken()
            return False
        if not data:
            self._loop.remove_reader(self._reader)
        return len(data) == _CHUNK

    def drain(self) -> None:
        """Read what had been sent before the child ended."""
        while self._readable():
            pass

    def close(self) -> None:
        """Give the descriptor back."""
        if self._reader >= 0:
            self._loop.remove_reader(self._reader)
            os.close(self._reader)
            self._reader = -1
