"""How controller, server, lane and child talk: length-prefixed JSON.

Never anything richer: what a measured process sends may be made to harm the reader.
"""

from __future__ import annotations

import json
import socket
import struct

from proctor.errors import SandboxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    Message = dict[str, Any]
else:
    Message = dict

MAX_FRAME_BYTES = 4 << 20
_HEADER = struct.Struct("<I")

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False)


class WireError(SandboxError):
    """The other side sent something that is no frame."""


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
        message = json.loads(body.decode())
    except ValueError as error:
        raise WireError(f"a frame that is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise WireError(f"a frame that is {type(message).__name__}, not a mapping")
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
