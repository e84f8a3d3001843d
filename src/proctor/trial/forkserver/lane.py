"""A lane runs one trial at a time: forks the child, keeps its time, its output and its offspring.

It is a subreaper, so every process that a trial leaves behind, in whatever session, becomes the lane's own
child; with one trial at a time there is no doubt whose it was. A trial is over when the lane has none left.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from proctor.experiments.base import Registered
from proctor.processes import become_subreaper, collect, die_with_parent, from_rusage, kill_below
from proctor.trial.forkserver.child import run_once, run_resident
from proctor.trial.forkserver.output import Output
from proctor.trial.forkserver.samplers import Samplers
from proctor.trial.forkserver.wire import IDLE, PHASES, Mark, Message, SharedPage, receive, send
from proctor.trial.noise import NoiseProbe
from proctor.trial.point.failure import message_of

HARNESS_GRACE_S = 60.0
"""How long the harness's own work in a child may take before the child counts as hung."""
_FOREIGN = frozenset(map(PHASES.index, ("construct", "setup", "warmup", "execute_once", "teardown")))
_INSTRUMENT = PHASES.index("instrument")


class HungUpError(Exception):
    """The controller has gone, or wants this trial no longer."""


@dataclass(slots=True)
class Subject:
    """The process under measurement. A resident one outlives its trial and is given orders over a socket."""

    pid: int
    handle: int
    outputs: tuple[Output, Output]
    orders: socket.socket | None = None
    status: int | None = None
    used: dict[str, Any] = field(default_factory=dict)

    def wait(self) -> None:
        """Collect it; it has ended or is about to."""
        _, self.status, raw = os.wait4(self.pid, 0)
        self.used = asdict(from_rusage(raw))

    def close(self) -> None:
        """Give the descriptors back."""
        os.close(self.handle)
        for output in self.outputs:
            output.close()
        if self.orders is not None:
            self.orders.close()


class Lane:
    """Serves trials from one socket until it is closed; leaves nothing running."""

    def __init__(self, control: socket.socket, registered: Registered, scratch: Path) -> None:
        self.control = control
        self.registered = registered
        self.scratch = scratch / f"{os.getpid()}"
        self.page = SharedPage()
        self.noise = NoiseProbe()
        self.resident: Subject | None = None

    def serve(self) -> NoReturn:
        """One trial after another. Whatever ends this lane, its offspring ends first."""
        code = 1
        try:
            become_subreaper()
            die_with_parent(signal.SIGTERM)
            signal.signal(signal.SIGTERM, _hang_up)
            while (received := receive(self.control)) is not None:
                message, fds = received
                send(self.control, self._answer(message["trial"], fds[0]))
            code = 0
        except HungUpError:
            code = 0
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            kill_below()
            shutil.rmtree(self.scratch, ignore_errors=True)
            os._exit(code)

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
        folder = Path(request["folder"])
        _make_folder(folder)
        _make_folder(self.scratch)
        self.page.empty()
        self.page.clear()
        before = self.noise.begin()
        forked_ns = time.monotonic_ns()
        subject = self._resident(request, handle) if request["resident"] else self._fork(request, handle)
        samplers = Samplers(request["samplers"], folder, subject.pid)
        try:
            overdue = self._watch(subject, request, samplers)
            killed, unkillable = self._clear_up(subject, overdue=overdue)
            ended_ns = time.monotonic_ns()
            answer = self._describe(subject, overdue)
            answer["output"] = _keep_output(subject.outputs, folder)
        finally:
            if subject.status is not None:
                subject.close()
                self.resident = None
        answer |= {
            "killed": killed,
            "unkillable": unkillable,
            "forked_ns": forked_ns,
            "ended_ns": ended_ns,
            "noise": self.noise.end(before),
            "samplers": samplers.close(),
        }
        return answer | {"files": not _removed_empty(folder)}

    def _fork(self, request: Message, handle: int) -> Subject:
        return self._start(
            lambda outputs, parent: run_once(
                request | {"scratch": str(self.scratch)},
                handle,
                page=self.page,
                registered=self.registered,
                outputs=outputs,
                parent=parent,
            )
        )

    def _resident(self, request: Message, handle: int) -> Subject:
        """Hand the trial to the process that stays; start it when there is none."""
        if self.resident is None:
            ours, theirs = socket.socketpair()
            self.resident = self._start(
                lambda outputs, parent: run_resident(
                    theirs, page=self.page, registered=self.registered, outputs=outputs, parent=parent
                ),
                ours,
            )
            theirs.close()
        assert self.resident.orders is not None
        for output in self.resident.outputs:
            output.reset()
        send(self.resident.orders, request | {"scratch": str(self.scratch)}, [handle])
        return self.resident

    def _start(
        self, run: Callable[[tuple[int, int], int], NoReturn], orders: socket.socket | None = None
    ) -> Subject:
        outputs = Output("stdout"), Output("stderr")
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                self.control.close()
                if orders is not None:
                    orders.close()
                run((outputs[0].writer, outputs[1].writer), parent)
            finally:
                os._exit(1)
        return Subject(pid, os.pidfd_open(pid), outputs, orders)

    def _watch(self, subject: Subject, request: Message, samplers: Samplers) -> Mark | None:
        """Wait until the trial is over; the mark where it stood still for too long, when it did."""
        poll = select.poll()
        streams = {output.reader: output for output in subject.outputs}
        orders = subject.orders.fileno() if subject.orders else None
        for each in (self.control.fileno(), subject.handle, orders, *streams):
            if each is not None:
                poll.register(each, select.POLLIN)
        timeout_s = request["timeout_s"]
        while True:
            wait_s = min(self._left_s(timeout_s), samplers.wait_s())
            ready = dict(poll.poll(None if wait_s == float("inf") else max(1, wait_s * 1000)))
            for reader in ready.keys() & streams.keys():
                streams[reader].read()
            if subject.handle in ready:
                subject.wait()
                return None
            if subject.orders and orders in ready:
                if not subject.orders.recv(1):
                    subject.wait()
                return None
            if self.control.fileno() in ready:
                raise HungUpError
            samplers.look()
            if self._left_s(timeout_s) <= 0:
                return self.page.read_mark()

    def _left_s(self, timeout_s: float | None) -> float:
        """Time until the child has stood at its mark for too long."""
        if timeout_s is None:
            return float("inf")
        mark = self.page.read_mark()
        allowed_s = timeout_s if mark.phase in _FOREIGN else timeout_s + HARNESS_GRACE_S
        return allowed_s - (time.monotonic_ns() - mark.since_ns) / 1e9

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
        for output in subject.outputs:
            output.drain()
        return killed, unkillable

    def _describe(self, subject: Subject, overdue: Mark | None) -> Message:
        """How it ended, and what was finished but not sent."""
        mark = overdue or self.page.read_mark()
        answer: Message = {
            "status": subject.status,
            "usage": subject.used,
            "phase": PHASES[mark.phase] if mark.phase < len(PHASES) else PHASES[IDLE],
            "iteration": mark.iteration,
            "timed_out": overdue is not None,
        }
        if subject.status:
            from binascii import b2a_base64

            answer["backlog"] = b2a_base64(self.page.backlog).decode()
            answer["last_words"] = subject.outputs[1].end_of(8_000)
        return answer

    def _empty_scratch(self) -> None:
        try:
            os.rmdir(self.scratch)  # noqa: PTH106 - once per trial, and Path costs as much as the call
        except FileNotFoundError:
            return
        except OSError:
            shutil.rmtree(self.scratch, ignore_errors=True)


def _keep_output(outputs: tuple[Output, Output], folder: Path) -> dict[str, int]:
    """Write each stream that has something beside the trial's own files; the folder may have been deleted."""
    for output in outputs:
        if output.total_bytes:
            # On a full disk the measurement is still worth keeping without it.
            with suppress(OSError):
                _make_folder(folder)
                (folder / f"{output.name}.txt").write_bytes(output.text())
    return {output.name: output.total_bytes for output in outputs}


def _make_folder(folder: Path) -> None:
    try:
        os.mkdir(folder)  # noqa: PTH102 - once per trial, and Path costs as much as the call
    except FileExistsError:
        return
    except FileNotFoundError:
        folder.mkdir(parents=True, exist_ok=True)


def _removed_empty(folder: Path) -> bool:
    try:
        os.rmdir(folder)  # noqa: PTH106 - as above
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _hang_up(_signum: int, _frame: Any) -> NoReturn:
    raise HungUpError
