"""A lane's hold on its zygote and on what that has forked: orders go in, words come out, all of it ends."""

from __future__ import annotations

import os
import signal
import time

from proctor.trial.forkserver.zygote import CLEAR, ENDED, FINISHED, HEADER, REFUSED, WORD, serve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

_END_WITHIN_S = 5.0


class LostError(Exception):
    """The zygote is gone, or says what makes no sense."""


class Word:
    """One message about the process under measurement."""

    __slots__ = ("kind", "left", "number", "used")

    def __init__(self, data: bytes) -> None:
        self.kind, self.left, self.number, *used = WORD.unpack(data)
        self.used = used
        """What the kernel counted, raw: `processes.from_rusage` reads it."""


class Subject:
    """The process under measurement, through the zygote that it is forked from."""

    def __init__(self, run: Callable[[int, int], Callable[[bytes, bool], NoReturn]]) -> None:
        """Fork the zygote. `run` gives the life of its children, who may read orders and say words too."""
        theirs, self._orders = os.pipe()
        self.answers, answers = os.pipe()
        self.zygote = os.fork()
        if self.zygote == 0:
            try:
                os.close(self._orders)
                os.close(self.answers)
                serve(theirs, answers, run(theirs, answers))
            finally:
                os._exit(1)
        os.close(theirs)
        os.close(answers)
        self.handle = os.pidfd_open(self.zygote)
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

    def hear(self) -> Word:
        """Wait for the next message. OSError when the machine refused a fork."""
        data = os.read(self.answers, WORD.size)
        if len(data) != WORD.size or data[0] > REFUSED:
            raise LostError
        word = Word(data)
        if word.kind in {FINISHED, CLEAR, REFUSED} or (word.kind == ENDED and not word.left):
            self.busy = False
        if word.kind == REFUSED:
            raise OSError(word.number, f"cannot fork: {os.strerror(word.number)}")
        if word.kind == ENDED:
            self.resident = 0
        return word

    def end(self) -> tuple[int, int]:
        """End all that the zygote has forked, but a resident: how many ended, and how many would not.

        The zygote collects them. Each is stopped before any is killed: then none can fork out of the sweep.
        """
        from proctor.processes import descendants, send_signal

        deadline = time.monotonic() + _END_WITHIN_S
        ended: set[tuple[int, int]] = set()
        while living := descendants(self.zygote, spare={self.resident}):
            for signum in (signal.SIGSTOP, signal.SIGKILL):
                for each in living:
                    send_signal(each, signum)
            ended |= {(each.pid, each.start_ticks) for each in living}
            if time.monotonic() > deadline:
                return len(ended), len(living)
            time.sleep(0.0005)
        return len(ended), 0
