"""The process that every measured one is forked from. It does next to nothing, so that forks are cheap.

A fork shares all memory between two processes, and each page that either writes afterwards costs a fault, or
a copy. So a zygote holds the experiment and the measuring code and little else, and between forks it waits:
for an order, for the end of the child, for the end of all that the child left behind (it is a subreaper, and
those become its own children). Time, output, folders and killing are the lane's, which is its parent.
"""

from __future__ import annotations

import os
import struct

from proctor.prctl import become_subreaper

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

STARTED, FINISHED, ENDED, CLEAR, REFUSED = range(5)
"""A child was forked; it finished an order and stays; it ended; nothing is left of it; no fork was had."""
WORD = struct.Struct("<BBi2d14q")
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
        os.write(answers, WORD.pack(ENDED, left, status, *used))
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
    os.write(answers, WORD.pack(kind, False, number, *_NOTHING))


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
