"""A ticket is answered once: when there is no more to take for it."""

from __future__ import annotations

from concurrent.futures import Future

from proctor.model.trial import Lease
from proctor.runs.tickets import Tickets

LEASE = Lease("r", "k", 1, "w", 1, 1, 0.0)
NEXT = Lease("r", "l", 2, "w", 1, 1, 0.0)


def test_a_ticket_goes_on_with_the_next_trial_and_is_answered_when_there_is_none():
    tickets, ticket = Tickets(), Future[bool]()
    assert tickets.room(4, 0) == 4, "the first look is for whatever there is"
    tickets.turned([], [], nothing=True)
    assert tickets.room(4, 0) == 0
    tickets.offer(ticket)
    assert tickets.room(4, 0) == 1
    tickets.turned([], [LEASE], nothing=False)
    assert tickets.room(4, 1) == 1, "the place of what ended needs no other ticket"
    tickets.turned([LEASE], [NEXT], nothing=False)
    assert not ticket.done()
    assert tickets.room(3, 0) == 0
    tickets.turned([NEXT], [], nothing=True)
    assert ticket.done()


def test_a_ticket_without_a_trial_is_answered_at_once_and_one_without_a_place_waits():
    tickets, ticket = Tickets(), Future[bool]()
    tickets.offer(ticket)
    tickets.turned([], [], nothing=False)
    assert not ticket.done()
    tickets.turned([], [], nothing=True)
    assert ticket.result() is False


def test_at_the_end_every_ticket_is_answered():
    tickets, waits, runs = Tickets(), Future[bool](), Future[bool]()
    tickets.offer(runs)
    tickets.turned([], [LEASE], nothing=False)
    tickets.offer(waits)
    tickets.close()
    assert (waits.result(), runs.result()) == (False, True)
