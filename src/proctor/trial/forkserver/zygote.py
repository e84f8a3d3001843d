"""The process that every measured one is forked from. It does next to nothing, so that forks are cheap.

A fork shares all memory between two processes, and each page that either writes afterwards costs a fault, or
a copy. So a zygote holds the experiment and the measuring code and little else, and between forks it waits:
for an order, for the end of the child, for the end of all that the child left behind (it is a subreaper, and
those become its own children). Time, output, folders and killing are the lane's, which is its parent.
"""

from __future__ import annotations

import os
import signal
import struct
import time

from proctor.prctl import become_subreaper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn


STARTED, FINISHED, ENDED, CLEAR, REFUSED = range(5)
"""A child was forked; it finished an order and stays; it ended; nothing is left of it; no fork was had."""
REPORT = struct.Struct("<BBi2d14q")
"""Which of these, whether something of the child is left, its id, status or an error, and what it used."""
_NOTHING = (0,) * 16

HEADER = struct.Struct("<IB")
ONCE, WATCHED, STAYS = range(3)
"""Carried out by a child that ends; by one whose id is told; by one that stays and takes more orders."""
_CHUNK = 8 << 10


def serve(orders: int, answers: int, run: Callable[[bytes, bool], NoReturn]) -> NoReturn:
    """Fork a child for each order until the lane hangs up. `run` is the child's life: it never returns."""
    become_subreaper()
    while (received := read_order(orders)) is not None:
        order, how = received
        try:
            pid = os.fork()
        except OSError as error:
            tell(answers, REFUSED, error.errno or 0)
            continue
        if pid == 0:
            if how != ONCE:
                tell(answers, STARTED, os.getpid())
            if how != STAYS:
                os.close(orders)
                os.close(answers)
            run(order, how == STAYS)
        status, used = _wait(pid)
        left = _any_left()
        os.write(answers, REPORT.pack(ENDED, left, status, *used))
        if left:
            _wait(0)
            tell(answers, CLEAR)
    os._exit(0)


def read_order(handle: int) -> tuple[bytes, int] | None:
    """The next order and how it is to be carried out; None when there will be none. One is sent at a time."""
    data = os.read(handle, _CHUNK)
    if len(data) < HEADER.size:
        return None
    size, how = HEADER.unpack_from(data)
    while len(data) < HEADER.size + size:
        more = os.read(handle, HEADER.size + size - len(data))
        if not more:
            return None
        data += more
    return data[HEADER.size :], how


def tell(answers: int, kind: int, number: int = 0) -> None:
    """One message to the lane."""
    os.write(answers, REPORT.pack(kind, False, number, *_NOTHING))


def _wait(pid: int) -> tuple[int, tuple[float, ...]]:
    """Collect children until this one has ended, or with 0 until none is left: its status, what it used."""
    try:
        while True:
            ended, status, used = os.wait4(-1, 0)
            if ended == pid:
                return status, used
    except ChildProcessError:
        return 0, _NOTHING


def _any_left() -> bool:
    """Whether any process of the trial still lives."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


_END_WITHIN_S = 5.0


class LostError(Exception):
    """The zygote is gone, or says what makes no sense."""


class ZygoteReport:
    """One message about the process under measurement."""

    __slots__ = ("kind", "left", "number", "used")

    def __init__(self, data: bytes) -> None:
        self.kind, self.left, self.number, *used = REPORT.unpack(data)
        self.used = used
        """What the kernel counted, raw: `processes.from_rusage` reads it."""


class ZygoteClient:
    """The process under measurement, through the zygote that it is forked from."""

    def __init__(self, run: Callable[[int, int], Callable[[bytes, bool], NoReturn]]) -> None:
        """Fork the zygote. `run` gives the life of its children, who may read orders and report too."""
        theirs, self._orders = os.pipe()
        self.answers, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._orders)
                os.close(self.answers)
                serve(theirs, answers, run(theirs, answers))
            finally:
                os._exit(1)
        os.close(theirs)
        os.close(answers)
        self.handle = os.pidfd_open(self.pid)
        self.resident = 0
        """The process that stays for more orders, while there is one."""
        self.busy = False
        """Whether an order is still being carried out, or something of it cannot be ended."""

    def order(self, data: bytes, how: int) -> None:
        """Make a child carry this out; LostError when there is no process to do it."""
        self.busy = True
        try:
            data = HEADER.pack(len(data), how) + data
            while data:
                data = data[os.write(self._orders, data) :]
        except OSError as error:
            raise LostError from error

    def hear(self) -> ZygoteReport:
        """Wait for the next message. OSError when the machine refused a fork."""
        data = os.read(self.answers, REPORT.size)
        if len(data) != REPORT.size or data[0] > REFUSED:
            raise LostError
        report = ZygoteReport(data)
        if report.kind in {FINISHED, CLEAR, REFUSED} or (report.kind == ENDED and not report.left):
            self.busy = False
        if report.kind == REFUSED:
            raise OSError(report.number, f"cannot fork: {os.strerror(report.number)}")
        if report.kind == ENDED:
            self.resident = 0
        return report

    def end(self) -> tuple[int, int]:
        """End all that the zygote has forked, but a resident: how many ended, and how many would not.

        The zygote collects them. Each is stopped before any is killed: then none can fork out of the sweep.
        """
        from proctor.processes import descendants, send_signal

        deadline = time.monotonic() + _END_WITHIN_S
        ended: set[tuple[int, int]] = set()
        while living := descendants(self.pid, spare={self.resident}):
            for signum in (signal.SIGSTOP, signal.SIGKILL):
                for each in living:
                    send_signal(each, signum)
            ended |= {(each.pid, each.start_ticks) for each in living}
            if time.monotonic() > deadline:
                return len(ended), len(living)
            time.sleep(0.0005)
        return len(ended), 0
