"""The measured process: what happens between the fork and the end of one parameter point, or of several."""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from proctor.experiments.base import Registered
from proctor.experiments.describe import instantiate
from proctor.processes import die_with_parent
from proctor.trial.forkserver.wire import PHASES, Link, LinkClosedError, SharedPage, receive
from proctor.trial.point.measure import Point

_LINK_CLOSED = PHASES.index("link closed")
_HARNESS = PHASES.index("harness")
FAILED_EXIT = 70


def run_once(
    request: Mapping[str, Any],
    handle: int,
    *,
    page: SharedPage,
    registered: Registered,
    outputs: Sequence[int],
    parent: int,
) -> NoReturn:
    """Measure one point in this freshly forked process, and end it."""
    code = FAILED_EXIT
    try:
        _settle(outputs, parent)
        code = _measure(request, handle, page, registered)
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
    parent: int,
) -> NoReturn:
    """Measure one point after another in this same process, until the lane hangs up (`isolation: none`)."""
    code = FAILED_EXIT
    try:
        _settle(outputs, parent)
        while (received := receive(orders)) is not None:
            request, (handle,) = received
            code = _measure(request, handle, page, registered)
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


def _measure(request: Mapping[str, Any], handle: int, page: SharedPage, registered: Registered) -> int:
    """One point; 0, or an exit code when the harness cannot go on in this process."""
    _use_scratch(request["scratch"])
    if not request["run_dir"]:
        request = {**request, "run_dir": f"{request['scratch']}/run"}
        os.mkdir(request["run_dir"])  # noqa: PTH102 - a pass beside the timed one leaves its files nowhere
    with socket.socket(fileno=handle) as sock:
        link = Link(sock, page)
        try:
            seed_everything(request["seed"])
            Point(request, link, page).run(lambda: instantiate(registered, request["params"]))
        except LinkClosedError:
            page.mark(_LINK_CLOSED)
            # The number may belong to a file of the measured code by now: it is not ours to close.
            sock.detach()
            return FAILED_EXIT
    return 0


def _settle(outputs: Sequence[int], parent: int) -> None:
    """Become a session of our own that dies with its lane, reads nothing and prints into the lane's pipes."""
    os.setsid()
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(FAILED_EXIT)
    for signum in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(signum, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for target, source in enumerate(outputs, start=1):
        os.dup2(source, target)


def _use_scratch(folder: str) -> None:
    """Temporary files go where the lane removes them, also when teardown never runs."""
    os.environ["TMPDIR"] = folder
    tempfile = sys.modules.get("tempfile")
    if tempfile is not None:
        tempfile.tempdir = None  # type: ignore[attr-defined]


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # Measured code may have closed the stream, or put anything in its place.
        with suppress(BaseException):
            stream.flush()
