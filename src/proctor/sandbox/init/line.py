"""Our end of a socket to a program inside that stays: bytes both ways, and no process for each exchange."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from proctor.sandbox.init.streams import Paced


class Line(Paced):
    """What comes is read as a command's output is: a flood must not take the controller's time."""

    def __init__(self, ours: socket.socket, on_close: Callable[[Line], None]) -> None:
        ours.setblocking(False)
        self._on_close = on_close
        self._unsent = bytearray()
        self._sending = False
        super().__init__(ours.detach(), _unheard)

    def listen(self, hear: Callable[[bytes], None]) -> None:
        """From now on what comes goes there, and nothing at all says that the other side has gone."""
        self._on_data = hear
        self._seen = 0
        if not self.open:
            hear(b"")

    def charge(self, size_bytes: int) -> None:
        """Count so many bytes more than came, for what took longer to understand than its size tells."""
        self._seen += size_bytes

    def send(self, data: bytes) -> None:
        """Send all of it, as it is taken; what a program that has gone would have got is lost."""
        if self.open:
            self._unsent += data
            self._send()

    def close(self) -> None:
        """Hang up."""
        if not self.open:
            return
        self._wait_to_send(False)
        super().close()
        self._on_close(self)
        self._on_data(b"")

    def _send(self) -> None:
        try:
            del self._unsent[: os.write(self._fd, self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        self._wait_to_send(bool(self._unsent))

    def _wait_to_send(self, wanted: bool) -> None:
        if wanted and not self._sending:
            self._loop.add_writer(self._fd, self._send)
        elif self._sending and not wanted:
            self._loop.remove_writer(self._fd)
        self._sending = wanted


def _unheard(data: bytes) -> None:
    """What comes before anybody listens."""
