"""The measured process: what happens between the fork and the end of one parameter point, or of several."""

from __future__ import annotations

import os
import random
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from proctor.experiments.base import Experiment, Registered
from proctor.experiments.describe import prepared
from proctor.trial.forkserver.wire import PHASES, Link, LinkClosedError, SharedPage, receive
from proctor.trial.point.measure import Point

_LINK_CLOSED = PHASES.index("link closed")
_HARNESS = PHASES.index("harness")
FAILED_EXIT = 70


@dataclass(frozen=True, slots=True)
class Order:
    """A point that is ready to be measured, as far as that can be prepared without running foreign code."""

    point: Point
    make: Callable[[], Experiment]

    @classmethod
    def prepare(cls, request: Mapping[str, Any], page: SharedPage, registered: Registered) -> Order:
        """Check and build everything in the lane: what a fresh fork does not touch costs it no page."""
        if not request["run_dir"]:
            # A pass beside the timed one leaves its files where they are removed.
            request = {**request, "run_dir": f"{request['scratch']}/run"}
        try:
            make = prepared(registered, request["params"])
        except Exception as error:  # noqa: BLE001 - raised again where it is recorded
            make = _raises(error)
        return cls(Point(request, page), make)


def _raises(error: Exception) -> Callable[[], Experiment]:
    def make() -> Experiment:
        raise error

    return make


def run_once(order: Order, handle: int, *, page: SharedPage, outputs: Sequence[int]) -> NoReturn:
    """Measure one point in this freshly forked process, and end it."""
    code = FAILED_EXIT
    try:
        _settle(outputs)
        code = _measure(order, handle, page)
        _flush()
    except BaseException:  # noqa: BLE001 - the last boundary: the lane is told where it was, and reads stderr
        page.mark(_HARNESS)
        traceback.print_exc()
    finally:
        os._exit(code)


def run_resident(
    orders: socket.socket,
    *,
    page: SharedPage,
    registered: Registered,
    outputs: Sequence[int],
) -> NoReturn:
    """Measure one point after another in this same process, until the lane hangs up (`isolation: none`)."""
    code = FAILED_EXIT
    try:
        _settle(outputs)
        while (received := receive(orders)) is not None:
            request, (handle,) = received
            code = _measure(Order.prepare(request, page, registered), handle, page)
            _flush()
            if code:
                break
            page.clear()
            orders.sendall(b".")
    except BaseException:  # noqa: BLE001 - as above
        page.mark(_HARNESS)
        traceback.print_exc()
    finally:
        os._exit(code)


def seed_everything(seed: int) -> None:
    """Seed what measured code draws from. Ids never come from here."""
    random.seed(seed)
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed(seed % 2**32)


def _measure(order: Order, handle: int, page: SharedPage) -> int:
    """One point; 0, or an exit code when the harness cannot go on in this process."""
    link = Link(handle, page)
    with suppress(LinkClosedError):
        seed_everything(order.point.context.seed)
        order.point.run(order.make, link)
    if link.lost:
        # The number may belong to a file of the measured code by now: it is not ours to close.
        page.mark(_LINK_CLOSED)
        return FAILED_EXIT
    os.close(handle)
    return 0


def _settle(outputs: Sequence[int]) -> None:
    """Become a session of our own that prints into the lane's pipes.

    Whatever could be settled before the fork was: each page that is written here is written for every trial.
    """
    os.setsid()
    for target, source in enumerate(outputs, start=1):
        os.dup2(source, target)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # Measured code may have closed the stream, or put anything in its place.
        with suppress(BaseException):
            stream.flush()
