"""Tickets: each lets a worker take one trial, then the next, and is given back when there is no more.

A message of the broker holds one. So a worker has no more messages in its hands than it executes trials, and
those that the broker still has wake others. A place that is at work needs no further message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from proctor.model.trial import Lease

_Held = tuple[str, int, int]


class Tickets:
    """Those that wait for a trial, and those whose trial is under way. For the loop's own thread."""

    def __init__(self) -> None:
        self.on_offer: Callable[[], None] = lambda: None
        self._waiting: deque[Future[bool]] = deque()
        self._held: dict[_Held, Future[bool]] = {}
        self._look = True

    def offer(self, ticket: Future[bool]) -> None:
        """One more. It is answered when its trial has ended, or at once, with False, when there is none."""
        self._waiting.append(ticket)
        self.on_offer()

    def look(self) -> None:
        """Take whatever there is at the next turn: a broker may have lost its messages."""
        self._look = True

    def room(self, free: int, ended: int) -> int:
        """How many trials may be taken, of so many free places, when so many have just ended."""
        return free if self._look else min(free, len(self._waiting) + ended)

    def turned(self, ended: Sequence[Lease], begun: Sequence[Lease], *, nothing: bool) -> None:
        """A turn is over: what ended and began; `nothing`: there was room, and no trial."""
        self._look = False
        for lease in ended:
            if ticket := self._held.pop(_name(lease), None):
                self._waiting.append(ticket)
        for lease in begun:
            if self._waiting:
                self._held[_name(lease)] = self._waiting.popleft()
        if nothing:
            self._answer_waiting()

    def over(self, lease: Lease) -> None:
        """A trial has ended without a result, because its lease was lost or a person stopped it."""
        if ticket := self._held.pop(_name(lease), None):
            _answer(ticket, took=True)

    def close(self) -> None:
        """Nobody takes anything more: answer all."""
        self._answer_waiting()
        while self._held:
            _answer(self._held.popitem()[1], took=True)

    def _answer_waiting(self) -> None:
        while self._waiting:
            _answer(self._waiting.popleft(), took=False)


def _answer(ticket: Future[bool], *, took: bool) -> None:
    if not ticket.done():
        ticket.set_result(took)


def _name(lease: Lease) -> _Held:
    return lease.run_id, lease.index, lease.fence
