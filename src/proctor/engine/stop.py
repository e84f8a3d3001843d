"""A request to stop: once, finish what runs; twice, end it now. Either way everything is saved."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Stop:
    """What a person has asked for so far."""

    def __init__(self, on_request: Callable[[int], None] | None = None) -> None:
        self.requests = 0
        self.reason = ""
        """Why no more trials begin, where no person asked for it."""
        self._changed = asyncio.Event()
        self.on_request = on_request

    @property
    def draining(self) -> bool:
        """Start nothing new."""
        return self.requests >= 1

    @property
    def now(self) -> bool:
        """End what runs."""
        return self.requests >= 2

    def request(self, *, times: int = 1) -> None:
        """Ask once more."""
        self.requests += times
        self._changed.set()
        if self.on_request:
            self.on_request(self.requests)

    def drain(self, reason: str) -> None:
        """Start nothing new, for a reason of the run's own."""
        if not self.draining:
            self.reason = reason
            self.request()

    async def changed(self) -> None:
        """Wait for the next request."""
        await self._changed.wait()
        self._changed.clear()

    @contextmanager
    def on_signals(self, *, terminations: int = 2) -> Iterator[None]:
        """Ctrl-C asks once; a termination, or a terminal that is closed, asks for an end now.

        `terminations`: how often one of them asks; a worker finishes what runs at the first.
        """
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self.request)
        heard = heard_terminations()
        for each in heard:
            loop.add_signal_handler(each, lambda: self.request(times=terminations))
        try:
            yield
        finally:
            for each in (signal.SIGINT, *heard):
                loop.remove_signal_handler(each)


def heard_terminations() -> tuple[signal.Signals, ...]:
    """The signals that end a run now. Under `nohup` a closed terminal does not."""
    hung_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return (signal.SIGTERM, signal.SIGHUP) if hung_up else (signal.SIGTERM,)
