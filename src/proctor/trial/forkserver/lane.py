"""A lane sees one trial at a time through: keeps its time, its output, its folder, and ends what it leaves.

It never forks while it serves: that is its zygote's work. Lane and zygote are subreapers both, so every
process that a trial leaves behind, in whatever session, becomes the zygote's child, and the lane's when the
zygote dies; with one trial at a time there is no doubt whose it was. A trial is over when none is left.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time

from proctor.prctl import become_subreaper, die_with_parent
from proctor.trial.forkserver.child import Child
from proctor.trial.forkserver.output import Output
from proctor.trial.forkserver.page import IDLE, PHASES, SharedPage
from proctor.trial.forkserver.rehearse import pin_what_it_writes
from proctor.trial.forkserver.scratch import empty_folder, has_files, keep_output, make_folder, remove_tree
from proctor.trial.forkserver.subject import LostError, Subject
from proctor.trial.forkserver.watch import Ending, HungUpError, Watch
from proctor.trial.forkserver.wire import receive, send
from proctor.trial.forkserver.zygote import FINISHED, ONCE, STAYS, WATCHED

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from typing import NoReturn

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
                last = answer["last"] = self.subject.busy
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
        self.subject = Subject(self._life)
        os.close(self.stream)
        from proctor.trial.forkserver.fitting import Fitting
        from proctor.trial.noise import NoiseProbe

        self.fitting = Fitting(self.registered)
        self.noise = NoiseProbe()
        self.watch = Watch(self.control.fileno(), self.subject, self.page, self.outputs)

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
            from proctor.trial.point.failure import message_of

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
        self.subject.order(self.fitting.order(request), _how(request))
        ending = self.watch.until_over(request)
        answer = self._describe(ending)
        answer["forked_ns"], answer["ended_ns"] = forked_ns, time.monotonic_ns()
        answer["noise"] = self.noise.end(before)
        answer["output_bytes"] = keep_output(self.outputs, folder)
        answer["files"] = has_files(folder)
        return answer

    def _describe(self, ending: Ending) -> Message:
        """How it ended, and what was finished but not sent."""
        mark, word = ending.overdue or self.page.read_mark(), ending.word
        stays = word.kind == FINISHED
        answer: Message = {
            "status": None if stays else word.number,
            "used": () if stays else word.used,
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
