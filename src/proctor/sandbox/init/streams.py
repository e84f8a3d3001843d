"""The two output pipes of a command: every byte is seen, the last ones are kept, memory is bounded."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Callable
from typing import Literal

from proctor.sandbox.base import OnOutput

_BLOCK = 1 << 16
_PIPE_BYTES = 4096
"""Fits into any pipe: an account with many of them gets small ones, and nobody reads from it yet."""
_MOST_BLOCKS = 17
"""A pipe holds no more, also one that the inside has made as large as it may."""
_FREE_BYTES = 16 << 20
_PAUSE_BYTES = 1 << 20
_PAUSE_S = 0.1
"""After the first 16 MiB a command may write 1 MiB in 0.1 s: a flood must not take the controller's time."""


class Paced:
    """A descriptor, read by the event loop no faster than a flood may come."""

    def __init__(self, fd: int, on_data: Callable[[bytes], None]) -> None:
        self._fd = fd
        self._on_data = on_data
        self._seen = 0
        self.paused_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._resume: asyncio.TimerHandle | None = None
        self._loop.add_reader(fd, self._read)

    @property
    def open(self) -> bool:
        """Whether somebody inside still holds the other end."""
        return self._fd >= 0

    def close(self) -> None:
        """Hang up."""
        if self._resume:
            self._resume.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> bool:
        try:
            data = os.read(self._fd, _BLOCK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.close()
            return False
        before, self._seen = self._seen, self._seen + len(data)
        self._on_data(data)
        crossed = self._seen > _FREE_BYTES and before // _PAUSE_BYTES != self._seen // _PAUSE_BYTES
        if crossed and self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._resume = self._loop.call_later(_PAUSE_S, self._continue)
            self.paused_s += _PAUSE_S
        return True

    def _continue(self) -> None:
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._read)


class Stream(Paced):
    """One pipe."""

    def __init__(
        self, name: Literal["stdout", "stderr"], on_output: OnOutput | None, keep_bytes: int
    ) -> None:
        reader, self.writer = os.pipe2(os.O_CLOEXEC)
        fcntl.fcntl(reader, fcntl.F_SETFL, os.O_NONBLOCK)
        # The inside may open /dev/stdout again; a pipe of ours would be closed to it.
        os.fchmod(self.writer, 0o666)
        self._name = name
        self._on_output = on_output
        self._keep_bytes = keep_bytes
        self._tail = bytearray()
        super().__init__(reader, self._take)

    def started(self) -> None:
        """The command has the other end now."""
        os.close(self.writer)
        self.writer = -1

    def drain(self) -> bytes:
        """Take what the command had written when it ended; a daemon that writes on is read and ignored."""
        if self._fd >= 0:
            for _ in range(_MOST_BLOCKS):
                if not self._read():
                    break
        kept = bytes(self._tail[-self._keep_bytes :]) if self._keep_bytes else b""
        self._tail.clear()
        self._on_output = None
        self._keep_bytes = 0
        return kept

    def close(self) -> None:
        """Hang up."""
        if self.writer >= 0:
            self.started()
        super().close()

    def _take(self, data: bytes) -> None:
        if self._on_output:
            self._on_output(self._name, data)
        if self._keep_bytes:
            self._tail += data
            if len(self._tail) > 2 * self._keep_bytes + _BLOCK:
                del self._tail[: -self._keep_bytes]


class Streams:
    """Standard output and error of one command."""

    def __init__(self, on_output: OnOutput | None, keep_bytes: int) -> None:
        self.out = Stream("stdout", on_output, keep_bytes)
        try:
            self.err = Stream("stderr", on_output, keep_bytes)
        except BaseException:
            self.out.close()
            raise

    def started(self) -> None:
        """The command has the other ends now."""
        self.out.started()
        self.err.started()

    def drain(self) -> tuple[bytes, bytes]:
        """What the command had written when it ended; what a daemon of it writes on is read and ignored."""
        return self.out.drain(), self.err.drain()

    @property
    def paused_s(self) -> float:
        """How long nothing was read, because too much was written; a writer waits meanwhile."""
        return self.out.paused_s + self.err.paused_s

    @property
    def open(self) -> bool:
        """Whether somebody inside still holds one of the other ends."""
        return self.out.open or self.err.open

    def close(self) -> None:
        """Hang up both."""
        self.out.close()
        self.err.close()


def input_descriptor(data: bytes) -> int:
    """A descriptor from which a command reads its input."""
    if len(data) <= _PIPE_BYTES:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        os.fchmod(reader, 0o666)
        os.write(writer, data)
        os.close(writer)
        return reader
    fd = os.memfd_create("stdin")
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(fd)


def close_quietly(*fds: int) -> None:
    """Close what may be closed already."""
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)
