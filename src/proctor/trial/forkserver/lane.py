"""A lane runs one trial at a time: forks the child, keeps its time, its output and its offspring.

It is a subreaper, so every process that a trial leaves behind, in whatever session, becomes the lane's own
child; with one trial at a time there is no doubt whose it was. A trial is over when the lane has none left.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import time
from binascii import b2a_base64
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from proctor.experiments.base import Registered
from proctor.processes import become_subreaper, collect, die_with_parent, kill_below
from proctor.trial.forkserver.child import Order, run_once, run_resident
from proctor.trial.forkserver.output import Output
from proctor.trial.forkserver.samplers import Samplers
from proctor.trial.forkserver.subject import Subject
from proctor.trial.forkserver.wire import IDLE, PHASES, Mark, Message, SharedPage, receive, send
from proctor.trial.noise import NoiseProbe
from proctor.trial.point.failure import message_of

COLLECT_EVERY = 1000
HARNESS_GRACE_S = 60.0
"""How long the harness's own work in a child may take before the child counts as hung."""
_FOREIGN = frozenset(map(PHASES.index, ("construct", "setup", "warmup", "execute_once", "teardown")))


class HungUpError(Exception):
    """The controller has gone, or wants this trial no longer."""


class Lane:
    """Serves trials from one socket until it is closed; leaves nothing running."""

    def __init__(
        self, control: socket.socket, registered: Registered, scratch: str, *, writes_files: bool
    ) -> None:
        self.control = control
        self.registered = registered
        self.scratch = f"{scratch}/{os.getpid()}"
        self.writes_files = writes_files
        self.page = SharedPage()
        self.noise = NoiseProbe()
        self.outputs = Output("stdout"), Output("stderr")
        self.streams = {output.reader: output for output in self.outputs}
        self.resident: Subject | None = None
        self.poll = select.poll()
        for each in (control.fileno(), *self.streams):
            self.poll.register(each, select.POLLIN)
        self._served = 0

    def serve(self) -> NoReturn:
        """One trial after another. Whatever ends this lane, its offspring ends first."""
        code = 1
        try:
            self._settle()
            while (received := receive(self.control)) is not None:
                message, fds = received
                self._served += 1
                if self._served % COLLECT_EVERY == 0:
                    gc.unfreeze()
                    gc.collect()
                send(self.control, self._answer(message["trial"], fds[0]))
            code = 0
        except HungUpError:
            code = 0
        finally:
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

    def _answer(self, request: Message, handle: int) -> Message:
        """One trial; an error of the machine's (no memory for a fork, no room on disk) is told apart."""
        try:
            return {"exit": self._trial(request, handle)}
        except OSError as error:
            kill_below()
            self.resident = None
            return {"refused": message_of(error)}
        finally:
            with suppress(OSError):
                os.close(handle)
            self._empty_scratch()

    def _trial(self, request: Message, handle: int) -> Message:
        folder = request["folder"]
        request["scratch"] = self.scratch
        if self.writes_files:
            _make_folder(folder)
        self.page.empty()
        self.page.clear()
        for output in self.outputs:
            output.reset()
        before = self.noise.begin()
        forked_ns = time.monotonic_ns()
        subject = self._resident(request, handle) if request["resident"] else self._fork(request, handle)
        samplers = Samplers(request["samplers"], folder, subject.pid) if request["samplers"] else None
        try:
            overdue = self._watch(subject, request["timeout_s"], samplers)
            killed, unkillable = self._clear_up(subject, overdue=overdue)
        finally:
            if subject.status is not None:
                subject.close()
                self.resident = None if subject is self.resident else self.resident
        answer = self._describe(subject, overdue)
        answer["killed"], answer["unkillable"] = killed, unkillable
        answer["forked_ns"], answer["ended_ns"] = forked_ns, time.monotonic_ns()
        answer["noise"] = self.noise.end(before)
        answer["samplers"] = samplers.close() if samplers else {}
        answer["output_bytes"] = _keep_output(self.outputs, folder)
        answer["files"] = _has_files(folder)
        return answer

    def _fork(self, request: Message, handle: int) -> Subject:
        order = Order.prepare(request, self.page, self.registered)
        writers = self.outputs[0].writer, self.outputs[1].writer
        return self._start(lambda: run_once(order, handle, page=self.page, outputs=writers))

    def _resident(self, request: Message, handle: int) -> Subject:
        """Hand the trial to the process that stays; start it when there is none."""
        if self.resident is None:
            ours, theirs = socket.socketpair()
            writers = self.outputs[0].writer, self.outputs[1].writer
            self.resident = self._start(
                lambda: run_resident(theirs, page=self.page, registered=self.registered, outputs=writers),
                ours,
            )
            theirs.close()
        assert self.resident.orders is not None
        send(self.resident.orders, request, [handle])
        return self.resident

    def _start(self, run: Callable[[], NoReturn], orders: socket.socket | None = None) -> Subject:
        # Nothing of the lane's own is garbage to a child: frozen, its collector never touches a page of it.
        gc.freeze()
        pid = os.fork()
        if pid == 0:
            try:
                self.control.close()
                if orders is not None:
                    orders.close()
                run()
            finally:
                os._exit(1)
        return Subject(pid, os.pidfd_open(pid), orders)

    def _watch(self, subject: Subject, timeout_s: float | None, samplers: Samplers | None) -> Mark | None:
        """Wait until the trial is over; the mark where it stood still for too long, when it did."""
        orders = subject.orders.fileno() if subject.orders else -1
        watched = [handle for handle in (subject.handle, orders) if handle >= 0]
        for handle in watched:
            self.poll.register(handle, select.POLLIN)
        try:
            while True:
                ready = dict(self.poll.poll(self._wait_ms(timeout_s, samplers)))
                for reader in ready.keys() & self.streams.keys():
                    self.streams[reader].read()
                if subject.handle in ready or (orders in ready and not subject.has_finished()):
                    subject.wait()
                    return None
                if orders in ready:
                    return None
                if self.control.fileno() in ready:
                    raise HungUpError
                if samplers:
                    samplers.look()
                mark = self.page.read_mark()
                if _left_s(mark, timeout_s) <= 0:
                    return mark
        finally:
            for handle in watched:
                self.poll.unregister(handle)

    def _wait_ms(self, timeout_s: float | None, samplers: Samplers | None) -> float | None:
        """Until the next sample or time limit; None when nothing but the child is waited for."""
        if timeout_s is None and samplers is None:
            return None
        wait_s = 3600.0
        if timeout_s is not None:
            # The child may move on to a shorter limit meanwhile: never sleep past the shortest there is.
            wait_s = min(timeout_s, _left_s(self.page.read_mark(), timeout_s))
        if samplers is not None:
            wait_s = min(wait_s, samplers.wait_s())
        return max(1.0, min(wait_s, 3600.0) * 1000)

    def _clear_up(self, subject: Subject, *, overdue: Mark | None) -> tuple[int, int]:
        """End what the trial left, and the subject when it overstayed: how many, and how many would not."""
        killed = unkillable = 0
        if overdue is not None:
            os.kill(subject.pid, signal.SIGKILL)
            subject.wait()
            killed = 1
        spare = {self.resident.pid} if self.resident and self.resident.status is None else set()
        if collect(spare=spare):
            others, unkillable = kill_below(spare=spare)
            killed += others
        for output in self.outputs:
            output.drain()
        return killed, unkillable

    def _describe(self, subject: Subject, overdue: Mark | None) -> Message:
        """How it ended, and what was finished but not sent."""
        mark = overdue or self.page.read_mark()
        answer: Message = {
            "status": subject.status,
            "used": subject.used,
            "phase": PHASES[mark.phase] if mark.phase < len(PHASES) else PHASES[IDLE],
            "iteration": mark.iteration,
            "timed_out": overdue is not None,
        }
        if backlog := self.page.backlog:
            answer["backlog"] = b2a_base64(backlog).decode()
        if subject.status:
            answer["last_words"] = self.outputs[1].end_of(8_000)
        return answer

    def _empty_scratch(self) -> None:
        """Remove what the trial left in its temporary folder; the folder stays for the next."""
        if _list(self.scratch) != []:
            remove_tree(self.scratch)
            _make_folder(self.scratch)


def _keep_output(outputs: tuple[Output, Output], folder: str) -> int:
    """Write each stream that has something beside the trial's own files; the folder may have been deleted."""
    for output in outputs:
        if output.total_bytes:
            # On a full disk the measurement is still worth keeping without it.
            with suppress(OSError):
                _make_folder(folder)
                Path(folder, f"{output.name}.txt").write_bytes(output.text())
    return sum(output.total_bytes for output in outputs)


def _left_s(mark: Mark, timeout_s: float | None) -> float:
    """Time until a child has stood at its mark for too long."""
    if timeout_s is None:
        return float("inf")
    allowed_s = timeout_s if mark.phase in _FOREIGN else timeout_s + HARNESS_GRACE_S
    return allowed_s - (time.monotonic_ns() - mark.since_ns) / 1e9


def remove_tree(folder: str) -> None:
    """Remove a folder and all in it, when it is there."""
    # Loaded when there is something to remove: it brings along every archive format there is.
    if os.path.lexists(folder):
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


def _make_folder(folder: str) -> None:
    with suppress(FileExistsError):
        os.makedirs(folder)  # noqa: PTH103 - text, once per trial


def _has_files(folder: str) -> bool:
    """Whether the trial left anything; an empty folder is removed."""
    found = _list(folder)
    if found == []:
        with suppress(OSError):
            os.rmdir(folder)  # noqa: PTH106 - text, once per trial
    return bool(found)


def _list(folder: str) -> list[str] | None:
    try:
        return os.listdir(folder)  # noqa: PTH208 - text, once per trial
    except OSError:
        return None
