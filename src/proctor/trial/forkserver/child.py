"""The measured process: what happens between the fork and the end of one parameter point, or of several."""

from __future__ import annotations

import marshal
import os
import sys
import traceback
from contextlib import suppress

from proctor.experiments.base import construct
from proctor.trial.forkserver.page import PHASES, RowsLostError, RowWriter
from proctor.trial.forkserver.zygote import FINISHED, read_order, tell
from proctor.trial.lockstep.seeds import Seeds
from proctor.trial.point.measure import Point

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn

    from proctor.experiments.base import Experiment, Registered
    from proctor.trial.forkserver.page import SharedPage

_LINK_CLOSED = PHASES.index("link closed")
_HARNESS = PHASES.index("harness")
FAILED_EXIT = 70


class Child:
    """What a zygote gives to each process that it forks."""

    __slots__ = ("outputs", "page", "registered", "stream")

    def __init__(
        self, registered: Registered, page: SharedPage, *, stream: int, outputs: Sequence[int]
    ) -> None:
        self.registered = registered
        self.page = page
        self.stream = stream
        """Where rows and the report go."""
        self.outputs = outputs
        """Where standard output and standard error go."""

    def run_once(self, order: bytes) -> NoReturn:
        """Measure one point in this freshly forked process, and end it."""
        code = FAILED_EXIT
        try:
            code = self.live(order)
        except BaseException:  # noqa: BLE001 - the last boundary: the lane is told where it was, and reads stderr
            self.page.mark(_HARNESS)
            traceback.print_exc()
        finally:
            os._exit(code)

    def run_all(self, order: bytes, orders: int, answers: int) -> NoReturn:
        """Measure one point after another in this process, until the lane hangs up (`isolation: none`)."""
        code = FAILED_EXIT
        try:
            self._settle()
            received: tuple[bytes, int] | None = (order, 0)
            while received is not None:
                code = self.measure(received[0])
                _flush()
                if code:
                    break
                self.page.clear()
                tell(answers, FINISHED)
                received = read_order(orders)
        except BaseException:  # noqa: BLE001 - as above
            self.page.mark(_HARNESS)
            traceback.print_exc()
        finally:
            os._exit(code)

    def live(self, order: bytes) -> int:
        """All that happens between the fork and the end of a process for one point; its exit code."""
        self._settle()
        code = self.measure(order)
        _flush()
        return code

    def _settle(self) -> None:
        """Become a session of our own that prints into the lane's pipes. The rest was settled earlier."""
        os.setsid()
        for target, source in enumerate(self.outputs, start=1):
            os.dup2(source, target)

    def measure(self, order: bytes) -> int:
        """One point; 0, or an exit code when the harness cannot go on in this process."""
        request = marshal.loads(order)  # noqa: S302 - from our lane: no measured process can write there
        self.page.take(request["number"])
        # Another point's code may have told the pipe not to wait.
        os.set_blocking(self.stream, True)
        writer = RowWriter(self.stream, self.page)
        with suppress(RowsLostError):
            seeds = seed_everything(request["seed"])
            try:
                Point(request, self.page).run(self._maker(request), writer)
            finally:
                seeds.close()
        if writer.lost:
            self.page.mark(_LINK_CLOSED)
            return FAILED_EXIT
        return 0

    def _maker(self, request: Mapping[str, Any]) -> Callable[[], Experiment]:
        """What makes the experiment. The lane has fitted the parameters, unless they do not fit."""
        fitted = request["fitted"]
        if fitted is not None:
            return lambda: construct(self.registered.cls, *fitted)

        def make() -> Experiment:
            from proctor.experiments.describe import instantiate

            return instantiate(self.registered, request["params"])

        return make


def seed_everything(seed: int) -> Seeds:
    """Seed what measured code draws from, now or once it is imported. Ids never come from here."""
    seeds = Seeds(seed)
    seeds.watch()
    seeds.sow()
    return seeds


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # Measured code may have closed the stream, or put anything in its place.
        with suppress(BaseException):
            stream.flush()
