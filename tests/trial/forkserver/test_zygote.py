"""A zygote forks what it is told to, says how that ended, and what it leaves can be ended."""

from __future__ import annotations

import errno
import os
import select
import signal

import pytest

from proctor.processes import read_process
from proctor.trial.forkserver.zygote import (
    CLEAR,
    ENDED,
    FINISHED,
    ONCE,
    REFUSED,
    REPORT,
    STARTED,
    STAYS,
    WATCHED,
    LostError,
    ZygoteClient,
    ZygoteReport,
    read_order,
    tell,
)


def leave_a_daemon() -> None:
    middle = os.fork()
    if middle == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv("/bin/sleep", ["sleep", "60"])
        os._exit(0)
    os.waitpid(middle, 0)


def life(orders: int, answers: int):
    """Children that do what their order says: a word and a number."""

    def run(order: bytes, stays: bool):
        while order:
            what, _, number = order.decode().partition(" ")
            if what == "leave":
                leave_a_daemon()
            if what == "die":
                os.kill(os.getpid(), int(number))
            if not stays:
                os._exit(int(number))
            tell(answers, FINISHED, int(number))
            order = (read_order(orders) or (b"", 0))[0]
        os._exit(0)

    return run


@pytest.fixture
def zygote():
    made = ZygoteClient(life)
    yield made
    made.resident = 0
    made.end()
    os.kill(made.pid, signal.SIGKILL)
    os.waitpid(made.pid, 0)
    for handle in (made.handle, made.answers, made._orders):
        os.close(handle)


def hear(zygote: ZygoteClient) -> ZygoteReport:
    poll = select.poll()
    poll.register(zygote.answers, select.POLLIN)
    assert poll.poll(30_000)
    return zygote.hear()


@pytest.mark.parametrize(("order", "code"), [("exit 0", 0), ("exit 7", 7), ("die 9", -9), ("die 15", -15)])
def test_the_end_of_a_child_is_told_with_what_it_used(zygote, order, code):
    zygote.order(order.encode(), ONCE)
    report = hear(zygote)
    assert (report.kind, report.left) == (ENDED, 0)
    assert os.waitstatus_to_exitcode(report.number) == code
    assert len(report.used) == 16
    assert report.used[2] > 1000, "the largest resident size in KiB"
    assert not zygote.busy


def test_an_order_larger_than_a_pipe_arrives_whole(zygote):
    zygote.order(b"exit 3" + b" " * 300_000, ONCE)
    assert os.waitstatus_to_exitcode(hear(zygote).number) == 3


def test_who_wants_to_look_at_a_child_is_told_its_id(zygote):
    zygote.order(b"exit 0", WATCHED)
    started = hear(zygote)
    assert started.kind == STARTED
    assert started.number not in {0, zygote.pid}
    assert hear(zygote).kind == ENDED


def test_what_a_child_leaves_in_another_session_is_told_and_ended(zygote):
    zygote.order(b"leave 0", ONCE)
    report = hear(zygote)
    assert (report.kind, report.left) == (ENDED, 1)
    assert zygote.busy
    assert zygote.end() == (1, 0)
    assert hear(zygote).kind == CLEAR
    assert not zygote.busy
    zygote.order(b"exit 0", ONCE)
    assert hear(zygote).left == 0


def test_a_resident_takes_orders_in_its_zygotes_place_and_is_spared(zygote):
    zygote.order(b"say 1", STAYS)
    zygote.resident = hear(zygote).number
    assert (hear(zygote).kind, zygote.busy) == (FINISHED, False)
    zygote.order(b"leave 2", STAYS)
    assert hear(zygote).number == 2
    assert zygote.end() == (1, 0)
    assert not read_process(zygote.resident).gone
    zygote.order(b"die 9", STAYS)
    report = hear(zygote)
    assert (report.kind, report.number, zygote.resident) == (ENDED, 9, 0)


def test_a_killed_zygote_is_lost(zygote):
    os.kill(zygote.pid, signal.SIGKILL)
    with pytest.raises(LostError):
        hear(zygote)
    os.waitid(os.P_PIDFD, zygote.handle, os.WEXITED | os.WNOWAIT)
    with pytest.raises(LostError):
        zygote.order(b"exit 0", ONCE)


@pytest.mark.parametrize("data", [b"", b"short", b"\xff" * REPORT.size])
def test_words_that_make_no_sense_are_refused(zygote, data):
    os.close(zygote.answers)
    zygote.answers, writer = os.pipe()
    os.write(writer, data)
    os.close(writer)
    with pytest.raises(LostError):
        zygote.hear()


def test_a_machine_that_cannot_fork_is_told_apart(zygote):
    os.close(zygote.answers)
    zygote.answers, writer = os.pipe()
    tell(writer, REFUSED, errno.EAGAIN)
    os.close(writer)
    with pytest.raises(OSError, match="cannot fork") as caught:
        zygote.hear()
    assert caught.value.errno == errno.EAGAIN


def test_a_zygote_whose_fork_fails_says_so_and_goes_on(monkeypatch):
    from proctor.trial.forkserver import zygote

    fork, tries = os.fork, []

    def fail_once() -> int:
        tries.append(None)
        # The first is the zygote's own.
        if len(tries) == 2:
            raise OSError(errno.ENOMEM, "no memory")
        return fork()

    monkeypatch.setattr(zygote.os, "fork", fail_once)
    made = ZygoteClient(life)
    try:
        made.order(b"exit 0", ONCE)
        with pytest.raises(OSError, match="cannot fork"):
            hear(made)
        made.order(b"exit 5", ONCE)
        assert os.waitstatus_to_exitcode(hear(made).number) == 5
    finally:
        os.kill(made.pid, signal.SIGKILL)
        os.waitpid(made.pid, 0)
