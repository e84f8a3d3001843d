"""The wait for one trial's end: its time limits, its output, the instruments that look from outside."""

from __future__ import annotations

import select
import time

from proctor.trial.forkserver.page import PHASES
from proctor.trial.forkserver.zygote import CLEAR, ENDED, FINISHED, STARTED, LostError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from proctor.trial.forkserver.output import Output
    from proctor.trial.forkserver.page import Mark, SharedPage
    from proctor.trial.forkserver.wire import Message
    from proctor.trial.forkserver.zygote import ZygoteClient, ZygoteReport
    from proctor.trial.point.instruments import Samplers

HARNESS_GRACE_S = 60.0
"""How long the harness's own work in a child may take before the child counts as hung."""
ANSWER_WITHIN_S = 5.0
"""How long a zygote may take to say that what was killed has ended."""
_FOREIGN = frozenset(map(PHASES.index, ("construct", "setup", "warmup", "execute_once", "teardown")))


class HungUpError(Exception):
    """The controller has ended, or no longer needs this trial."""


class Ending:
    """How a trial ended."""

    __slots__ = ("killed", "overdue", "report", "samplers", "unkillable")

    def __init__(self) -> None:
        self.report: ZygoteReport
        """How the child ended, or that it stays for more orders."""
        self.overdue: Mark | None = None
        """The phase in which it hung, if it did."""
        self.killed = 0
        self.unkillable = 0
        self.samplers: Samplers | None = None


class Watch:
    """Watches the processes that a lane's zygote forks."""

    def __init__(
        self, control: int, zygote: ZygoteClient, page: SharedPage, outputs: tuple[Output, ...]
    ) -> None:
        self._control = control
        self._zygote = zygote
        self._page = page
        self._outputs = outputs
        self._streams: Mapping[int, Output] = {output.reader: output for output in outputs}
        self._poll = select.poll()
        for each in (control, zygote.answers, zygote.handle, *self._streams):
            self._poll.register(each, select.POLLIN)

    def until_over(self, request: Message) -> Ending:
        """Wait until the trial has ended, by itself or at its time limit, and until nothing of it is left."""
        ending = Ending()
        report = self._until_said(request, ending)
        if report is None:
            self._zygote.resident = 0
            ending.killed, ending.unkillable = self._zygote.end()
            report = self._hear_soon()
        ending.report = report
        if report.left or report.kind == FINISHED:
            killed, ending.unkillable = self._zygote.end()
            ending.killed += killed
            if report.left and not ending.unkillable and self._hear_soon().kind != CLEAR:
                raise LostError
        for output in self._outputs:
            output.drain()
        return ending

    def _until_said(self, request: Message, ending: Ending) -> ZygoteReport | None:
        """The message that ends the trial; None when it hung before."""
        timeout_s = request["timeout_s"]
        while True:
            ready = dict(self._poll.poll(self._wait_ms(timeout_s, ending.samplers)))
            for reader in ready.keys() & self._streams.keys():
                self._streams[reader].read()
            if self._zygote.answers in ready:
                report = self._zygote.hear()
                if report.kind == STARTED:
                    self._started(report.number, request, ending)
                elif request["resident"] and self._page.taken != request["number"]:
                    # It died between two points; the order may have gone with it.
                    raise LostError
                else:
                    return report
            elif self._zygote.handle in ready:
                raise LostError
            if self._control in ready:
                raise HungUpError
            if ending.samplers:
                ending.samplers.look()
            mark = self._page.read_mark()
            if _left_s(mark, timeout_s) <= 0:
                ending.overdue = mark
                return None

    def _started(self, pid: int, request: Message, ending: Ending) -> None:
        if request["resident"]:
            self._zygote.resident = pid
        if request["samplers"]:
            from proctor.trial.point.instruments import Samplers

            ending.samplers = Samplers(request["samplers"], request["folder"], pid)

    def _hear_soon(self) -> ZygoteReport:
        """What the zygote says once all below it were killed; LostError when it was stopped or killed too."""
        poll = select.poll()
        poll.register(self._zygote.answers, select.POLLIN)
        deadline = time.monotonic() + ANSWER_WITHIN_S
        while poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            report = self._zygote.hear()
            if report.kind in {ENDED, CLEAR}:
                return report
        raise LostError

    def _wait_ms(self, timeout_s: float | None, samplers: Samplers | None) -> float | None:
        """Until the next sample or time limit; None when nothing but the child is waited for."""
        if timeout_s is None and samplers is None:
            return None
        wait_s = 3600.0
        if timeout_s is not None:
            # The child may move on to a shorter limit meanwhile: never sleep past the shortest there is.
            wait_s = min(timeout_s, _left_s(self._page.read_mark(), timeout_s))
        if samplers is not None:
            wait_s = min(wait_s, samplers.wait_s())
        return max(1.0, min(wait_s, 3600.0) * 1000)


def _left_s(mark: Mark, timeout_s: float | None) -> float:
    """Time until a child has stood at its mark for too long."""
    if timeout_s is None:
        return float("inf")
    allowed_s = timeout_s if mark.phase in _FOREIGN else timeout_s + HARNESS_GRACE_S
    return allowed_s - (time.monotonic_ns() - mark.since_ns) / 1e9
