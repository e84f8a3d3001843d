"""How controller, server, lane and child talk: JSON frames on sockets, and one shared page for the rest.

The page lets a child say where it is, and keep finished rows safe, without a system call beside the timer.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proctor.errors import SandboxError

MAX_FRAME_BYTES = 4 << 20
_HEADER = struct.Struct("<I")
_MARK = struct.Struct("<QIi")
_LENGTH = struct.Struct("<I")
_LENGTH_AT = _MARK.size
_BACKLOG_AT = 64
BACKLOG_BYTES = (64 << 10) - _BACKLOG_AT
FLUSH_EVERY_NS = 100_000_000

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False)

Message = dict[str, Any]


class WireError(SandboxError):
    """The other side sent something that is no frame."""


class LinkClosedError(Exception):
    """The measured code closed the harness's socket, and the page cannot hold what there is to say."""


def encode(message: Mapping[str, Any]) -> bytes:
    """One frame."""
    body = _ENCODER.encode(message).encode()
    return _HEADER.pack(len(body)) + body


class Decoder:
    """Turns a stream of bytes into messages; refuses what cannot be one before reading it."""

    def __init__(self, *, limit_bytes: int | None = None) -> None:
        self._buffer = bytearray()
        self._left_bytes = limit_bytes

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are complete now."""
        self._buffer += data
        if self._left_bytes is not None:
            self._left_bytes -= len(data)
            if self._left_bytes < 0:
                raise WireError("more bytes of results than one trial may send")
        while len(self._buffer) >= _HEADER.size:
            (size,) = _HEADER.unpack_from(self._buffer)
            if size > MAX_FRAME_BYTES:
                raise WireError(f"a frame of {size} bytes; the limit is {MAX_FRAME_BYTES}")
            end = _HEADER.size + size
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            yield _parse(body)


def _parse(body: bytes) -> Message:
    try:
        message = json.loads(body)
    except ValueError as error:
        raise WireError(f"a frame that is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise WireError(f"a frame that is no mapping but {type(message).__name__}")
    return message


def send(sock: socket.socket, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
    """Send one frame whole, with descriptors attached to its first byte."""
    data = encode(message)
    sent = socket.send_fds(sock, [data], fds) if fds else sock.send(data)
    if sent < len(data):
        sock.sendall(data[sent:])


def receive(sock: socket.socket) -> tuple[Message, list[int]] | None:
    """Wait for one frame and its descriptors; None when the other side has gone."""
    header = b""
    fds: list[int] = []
    try:
        while len(header) < _HEADER.size:
            data, got, _, _ = socket.recv_fds(sock, _HEADER.size - len(header), 8)
            fds += got
            if not data:
                return None
            header += data
        (size,) = _HEADER.unpack(header)
        if size > MAX_FRAME_BYTES:
            raise WireError(f"a frame of {size} bytes; the limit is {MAX_FRAME_BYTES}")
        body = bytearray()
        while len(body) < size:
            data = sock.recv(size - len(body))
            if not data:
                return None
            body += data
    except ConnectionError:
        return None
    return _parse(bytes(body)), fds


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a child said it was: a phase, an iteration, and since when (monotonic nanoseconds)."""

    phase: int
    iteration: int
    since_ns: int


PHASES = (
    "start",
    "construct",
    "setup",
    "warmup",
    "execute_once",
    "teardown",
    "instrument",
    "end",
    "link closed",
    "harness",
)
IDLE = 0


class SharedPage:
    """Memory that a lane and its child both see; it outlives the child."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _BACKLOG_AT + BACKLOG_BYTES)
        self.full = False

    def mark(self, phase: int, iteration: int = 0) -> None:
        """Say where we are; the time limit of this phase starts now."""
        _MARK.pack_into(self._memory, 0, time.monotonic_ns(), phase, iteration)

    def clear(self) -> None:
        """Between phases: the harness itself is at work."""
        self.mark(IDLE)

    def read_mark(self) -> Mark:
        """Where the child is, read until two looks agree."""
        while True:
            first = self._memory[: _MARK.size]
            if first == self._memory[: _MARK.size]:
                since_ns, phase, iteration = _MARK.unpack(first)
                return Mark(phase, iteration, since_ns)

    @property
    def backlog(self) -> bytes:
        """Whole frames that were written and perhaps not sent."""
        (length,) = _LENGTH.unpack_from(self._memory, _LENGTH_AT)
        return self._memory[_BACKLOG_AT : _BACKLOG_AT + min(length, BACKLOG_BYTES)]

    def append(self, data: bytes) -> bool:
        """Keep a frame; False when there is no room. The length is written last, so no half frame is seen."""
        (length,) = _LENGTH.unpack_from(self._memory, _LENGTH_AT)
        if self.full or length + len(data) > BACKLOG_BYTES:
            return False
        start = _BACKLOG_AT + length
        self._memory[start : start + len(data)] = data
        _LENGTH.pack_into(self._memory, _LENGTH_AT, length + len(data))
        return True

    def fill(self) -> None:
        """Take nothing more: after a gap nothing that follows can be trusted."""
        self.full = True

    def empty(self) -> None:
        """The backlog has been sent."""
        _LENGTH.pack_into(self._memory, _LENGTH_AT, 0)


class Link:
    """A child's way to the controller. Rows wait in the page, so a crash keeps every finished one."""

    def __init__(self, handle: int, page: SharedPage) -> None:
        self._handle = handle
        self._page = page
        self._identity = _identity(handle)
        self._pid = os.getpid()
        self._flushed_ns = time.monotonic_ns()
        self.lost = False
        """Whether the socket is no longer ours to write to."""

    def row(self, message: Mapping[str, Any]) -> None:
        """Keep a row; it is sent with others when a tenth of a second has passed or the page is full."""
        self._keep(encode(message))
        if time.monotonic_ns() - self._flushed_ns > FLUSH_EVERY_NS:
            self.flush()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send now, after everything that waits."""
        self._keep(encode(message))
        self.flush()

    def _keep(self, data: bytes) -> None:
        """Put a frame into the page, or past it when it is too large; LinkClosedError when neither works."""
        if self._page.append(data):
            return
        if not self.lost:
            self.flush()
            if self._page.append(data):
                return
            self._write(data)
        if self.lost:
            self._page.fill()
            raise LinkClosedError

    def flush(self) -> None:
        """Send what waits. When the socket is lost it stays in the page, where the lane finds it."""
        waiting = self._page.backlog
        if waiting and not self.lost:
            self._write(waiting)
            if not self.lost:
                self._page.empty()
        self._flushed_ns = time.monotonic_ns()

    def end_if_forked(self) -> None:
        """A copy that the measured code forked and let return ends here, without a word."""
        if os.getpid() != self._pid:
            os._exit(0)

    def _write(self, data: bytes) -> None:
        self.end_if_forked()
        try:
            # The number may be a file of the measured code's by now: look before writing into it.
            self.lost = _identity(self._handle) != self._identity
            while data and not self.lost:
                data = data[os.write(self._handle, data) :]
        except OSError:
            self.lost = True


def _identity(handle: int) -> tuple[int, int]:
    found = os.fstat(handle)
    return found.st_dev, found.st_ino
