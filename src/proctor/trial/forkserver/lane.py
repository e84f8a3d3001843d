"""A lane sees one trial at a time through: keeps its time, its output, its folder, and ends what it leaves.

It never forks while it serves: that is its zygote's work. Lane and zygote are subreapers both, so every
process that a trial leaves behind, in whatever session, becomes the zygote's child, and the lane's when the
zygote dies; with one trial at a time there is no doubt whose it was. A trial is over when none is left.
"""

from __future__ import annotations

import gc
import marshal
import os
import signal
import sys
import time

from proctor.prctl import become_subreaper, die_with_parent
from proctor.trial.forkserver.child import Child
from proctor.trial.forkserver.output import (
    Output,
    empty_folder,
    has_files,
    keep_output,
    make_folder,
    remove_tree,
)
from proctor.trial.forkserver.page import IDLE, PHASES, SharedPage
from proctor.trial.forkserver.pinned import pin_what_it_writes
from proctor.trial.forkserver.watch import Ending, HungUpError, Watch
from proctor.trial.forkserver.wire import receive, send
from proctor.trial.forkserver.zygote import FINISHED, ONCE, STAYS, WATCHED, LostError, ZygoteClient

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping
    from typing import Any, NoReturn

    from proctor.experiments.base import Registered
    from proctor.trial.forkserver.wire import Message

COLLECT_EVERY = 1000


class Lane:
    """Serves trials from one socket until it is closed; leaves nothing running."""

    def __init__(
        self, control: socket.socket, stream: int, registered: Registered, scratch: str, *, writes_files: bool
    ) -> None:
        self.control = control
        self.stream = stream
        self.registered = registered
        self.scratch = f"{scratch}/{os.getpid()}"
        self.writes_files = writes_files
        self.page = SharedPage()
        self.outputs = Output("stdout"), Output("stderr")
        self._served = 0

    def serve(self) -> NoReturn:
        """Run one trial after another. Before this lane ends, all of its descendants end."""
        code = 1
        try:
            self._settle()
            self._prepare()
            last = False
            while not last and (received := receive(self.control)) is not None:
                answer = self._answer(received[0]["trial"])
                last = answer["last"] = self.zygote.busy
                send(self.control, answer)
            code = 0
        except HungUpError:
            code = 0
        except LostError:
            pass
        finally:
            from proctor.processes import kill_below

            kill_below()
            remove_tree(self.scratch)
            os._exit(code)

    def _settle(self) -> None:
        """What every child inherits: plain signals, a temporary folder that is emptied after each of them."""
        become_subreaper()
        die_with_parent(signal.SIGKILL)
        for signum in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(signum, signal.SIG_DFL)
        gc.disable()
        os.mkdir(self.scratch)  # noqa: PTH102 - text all along: it is sent to children
        os.environ["TMPDIR"] = self.scratch
        if (tempfile := sys.modules.get("tempfile")) is not None:
            tempfile.tempdir = None  # type: ignore[attr-defined]

    def _prepare(self) -> None:
        """Fork the zygote first: what is loaded after it, no measured process has to carry."""
        self.zygote = ZygoteClient(self._life)
        os.close(self.stream)
        from proctor.trial.noise import NoiseProbe

        self.fitting = Fitting(self.registered)
        self.noise = NoiseProbe()
        self.watch = Watch(self.control.fileno(), self.zygote, self.page, self.outputs)

    def _life(self, orders: int, answers: int) -> Callable[[bytes, bool], NoReturn]:
        """In the zygote: give back what is the lane's alone, and say how children live."""
        self.control.close()
        for output in self.outputs:
            os.close(output.reader)
        writers = self.outputs[0].writer, self.outputs[1].writer
        child = Child(self.registered, self.page, stream=self.stream, outputs=writers)
        ring = pin_what_it_writes()

        def run(order: bytes, stays: bool) -> NoReturn:
            if ring is not None:
                os.close(ring)
            if stays:
                child.run_all(order, orders, answers)
            child.run_once(order)

        return run

    def _answer(self, request: Message) -> Message:
        """One trial; an error of the machine's (no memory for a fork, no room on disk) is told apart."""
        self._served += 1
        if self._served % COLLECT_EVERY == 0:
            gc.collect()
        try:
            return {"exit": self._trial(request)}
        except OSError as error:
            from proctor.trial.point.values import message_of

            return {"refused": message_of(error)}
        finally:
            empty_folder(self.scratch)

    def _trial(self, request: Message) -> Message:
        folder = request["folder"]
        if self.writes_files:
            make_folder(folder)
        # A pass beside the timed one leaves its files where they are removed.
        request["run_dir"] = request["run_dir"] or f"{self.scratch}/run"
        request["number"] = self._served
        self.page.empty()
        self.page.clear()
        for output in self.outputs:
            output.reset()
        before = self.noise.begin()
        forked_ns = time.monotonic_ns()
        self.zygote.order(self.fitting.order(request), _how(request))
        ending = self.watch.until_over(request)
        answer = self._describe(ending)
        answer["forked_ns"], answer["ended_ns"] = forked_ns, time.monotonic_ns()
        answer["noise"] = self.noise.end(before)
        answer["output_bytes"] = keep_output(self.outputs, folder)
        answer["files"] = has_files(folder)
        return answer

    def _describe(self, ending: Ending) -> Message:
        """How it ended, and what was finished but not sent."""
        mark, report = ending.overdue or self.page.read_mark(), ending.report
        stays = report.kind == FINISHED
        answer: Message = {
            "status": None if stays else report.number,
            "used": () if stays else report.used,
            "phase": PHASES[mark.phase] if mark.phase < len(PHASES) else PHASES[IDLE],
            "iteration": mark.iteration,
            "timed_out": ending.overdue is not None,
            "killed": ending.killed,
            "unkillable": ending.unkillable,
            "samplers": ending.samplers.close() if ending.samplers else {},
        }
        if backlog := self.page.backlog:
            from binascii import b2a_base64

            answer["backlog"] = b2a_base64(backlog).decode()
        if answer["status"]:
            answer["last_words"] = self.outputs[1].end_of(8_000)
        return answer


def _how(request: Message) -> int:
    if request["resident"]:
        return STAYS
    return WATCHED if request["samplers"] else ONCE


class Fitting:
    """Fits a point's parameters to its experiment here: no measured process needs what checks them.

    Requests become orders that a child carries out without another look at the parameters.
    """

    def __init__(self, registered: Registered) -> None:
        from functools import partial

        from proctor.experiments.describe import fitted
        from proctor.experiments.schema import own_arguments

        self._fitted = partial(fitted, registered)
        self._defaults = {each.name: each.default for each in own_arguments(registered.cls.__init__)}

    def order(self, request: Mapping[str, Any]) -> bytes:
        """The request with fitted arguments, as bytes. What does not fit, the child finds out and reports."""
        if request.get("fitted"):
            return marshal.dumps(dict(request))
        try:
            values, positional, named = self._fitted(request["params"])
            # Not every default can be sent, and none has to be: the constructor has them.
            named = {name: value for name, value in named.items() if not self._is_default(name, value)}
            return marshal.dumps({**request, "fitted": (values, positional, named)})
        except Exception:  # noqa: BLE001 - raised again in the child, where it is recorded
            return marshal.dumps({**request, "fitted": None})

    def _is_default(self, name: str, value: Any) -> bool:
        return name in self._defaults and value is self._defaults[name]
