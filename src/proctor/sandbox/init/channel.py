"""Packets of tagged strings with descriptors, over a socket to the keeper or to the init of a sandbox."""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence

from proctor.disk import write_all

_INLINE_BYTES = 96 * 1024
_REPLY_BYTES = 4096
_RIGHTS_BYTES = socket.CMSG_LEN(4 * array.array("i").itemsize)

OnMessage = Callable[[list[str], list[int]], None]


class Channel:
    """One end of a packet socket, driven by the running event loop."""

    def __init__(self, sock: socket.socket, on_message: OnMessage, on_close: Callable[[], None]) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._on_message = on_message
        self._on_close = on_close
        self._queue: deque[tuple[bytes, Sequence[int]]] = deque()
        self._loop = asyncio.get_running_loop()
        self._fd = sock.fileno()
        self._loop.add_reader(self._fd, self._readable)
        self.closed = False

    def send(self, fields: Sequence[str], fds: Sequence[int] = ()) -> None:
        """Send one message; the descriptors are duplicated and stay the caller's."""
        data = ("\0".join(fields) + "\0").encode(errors="surrogateescape")
        if len(data) > _INLINE_BYTES:
            large = os.memfd_create("message")
            write_all(large, data)
            self._post(b"@", [*fds, large])
            os.close(large)
        else:
            self._post(data, fds)

    def silence(self) -> None:
        """Send and receive nothing more; the other side is not notified. No callback follows."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._fd)
        if self._queue:
            self._loop.remove_writer(self._fd)
        while self._queue:
            _close_all(self._queue.popleft()[1])

    def close(self) -> None:
        """Hang up; no callback follows."""
        self.silence()
        self._socket.close()

    def _post(self, data: bytes, fds: Sequence[int]) -> None:
        if self.closed:
            return
        if not self._queue and self._try_send(data, fds):
            return
        self._queue.append((data, [os.dup(fd) for fd in fds]))
        self._loop.add_writer(self._fd, self._writable)

    def _try_send(self, data: bytes, fds: Sequence[int]) -> bool:
        try:
            if fds:
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
                self._socket.sendmsg([data], [rights])
            else:
                self._socket.send(data)
        except BlockingIOError:
            return False
        except OSError:
            pass  # the other side has gone; reading says so
        return True

    def _writable(self) -> None:
        while self._queue and self._try_send(*self._queue[0]):
            _close_all(self._queue.popleft()[1])
        if not self._queue and not self.closed:
            self._loop.remove_writer(self._fd)

    def _readable(self) -> None:
        # One message at a time: there is rarely a second, and the loop comes back if there is.
        try:
            data, rights, _, _ = self._socket.recvmsg(_REPLY_BYTES, _RIGHTS_BYTES, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            data, rights = b"", []
        if data:
            self._on_message(data.decode(errors="replace").split(" "), _descriptors(rights) if rights else [])
        else:
            self.close()
            self._on_close()


class Replies:
    """Answers that are waited for, each by the number of its request."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[list[str]]] = {}
        self._last = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def number(self) -> str:
        """A number for a new request."""
        self._last += 1
        return str(self._last)

    def expect(self, ident: str) -> asyncio.Future[list[str]]:
        """The answer to come."""
        future: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self._waiting[ident] = future
        return future

    def give(self, ident: str, words: list[str]) -> bool:
        """An answer came; False when nobody waits for it."""
        future = self._waiting.pop(ident, None)
        if future is None or future.done():
            return False
        future.set_result(words)
        return True

    def fail(self, error: Exception, ident: str | None = None) -> None:
        """No answer will come, to one request or to any; who still waits gets the error."""
        for each in list(self._waiting) if ident is None else [ident]:
            future = self._waiting.pop(each, None)
            if future and not future.done():
                future.set_exception(error)
                future.exception()  # those who still wait get it; others do not need it


def _descriptors(rights: Sequence[tuple[int, int, bytes]]) -> list[int]:
    """Those that came with a message."""
    found = array.array("i")
    for level, kind, data in rights:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return list(found)


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)
