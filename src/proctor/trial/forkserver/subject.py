"""The process under measurement, as its lane holds it."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence


class Subject:
    """A forked child. A resident one outlives its trial and is given orders over a socket."""

    __slots__ = ("handle", "orders", "pid", "status", "used")

    def __init__(self, pid: int, handle: int, orders: socket.socket | None = None) -> None:
        self.pid = pid
        self.handle = handle
        self.orders = orders
        self.status: int | None = None
        self.used: Sequence[float] = ()
        """What the kernel counted, raw: `processes.from_rusage` reads it."""

    def has_finished(self) -> bool:
        """Whether a resident said that the trial is over; False when it hung up instead: it is dying."""
        return bool(self.orders and self.orders.recv(1))

    def wait(self) -> None:
        """Collect it; it has ended or is about to."""
        _, self.status, used = os.wait4(self.pid, 0)
        self.used = tuple(used)

    def close(self) -> None:
        """Give the descriptors back."""
        os.close(self.handle)
        if self.orders is not None:
            self.orders.close()
