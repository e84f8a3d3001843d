"""The keeper's end of the packets, for tests that play the keeper."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass

_MOST_BYTES = 1 << 18
_MOST_FDS = 250


@dataclass(frozen=True, slots=True)
class Message:
    """A packet: strings by their first letter, in order, and descriptors."""

    fields: list[str]
    fds: list[int]

    @property
    def kind(self) -> str:
        """What is asked."""
        return self.fields[0][:1]

    @property
    def ident(self) -> str:
        """The name of the request."""
        return self.fields[0][1:]

    def all(self, tag: str) -> Iterator[str]:
        """Every string with a tag."""
        return (text[1:] for text in self.fields[1:] if text[:1] == tag)

    def one(self, tag: str, default: str = "") -> str:
        """The first string with a tag."""
        return next(self.all(tag), default)

    def close(self) -> None:
        """Close the descriptors that came with it."""
        for fd in self.fds:
            os.close(fd)


def receive(sock: socket.socket) -> Message | None:
    """The next packet; None when the other side has gone."""
    data, fds, _, _ = socket.recv_fds(sock, _MOST_BYTES, _MOST_FDS, socket.MSG_CMSG_CLOEXEC)
    if not data:
        return None
    if data == b"@":  # too long for a packet: the text is in the last descriptor
        fd = fds.pop()
        data = os.pread(fd, os.fstat(fd).st_size, 0)
        os.close(fd)
    return Message([os.fsdecode(text) for text in data.split(b"\0")[:-1]], list(fds))


def reply(sock: socket.socket, *words: object) -> None:
    """Send words; a reader that has gone is no error here."""
    text = " ".join(str(word) for word in words)
    try:
        sock.send(text.encode(errors="replace")[:500])
    except OSError:
        return
