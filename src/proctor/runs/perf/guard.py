"""Run the episodes in a child process, so that none of them can take the harness with it.

An agent is a class that runs in the engine's process: it may call `os._exit`, crash the interpreter or never
give the event loop back. When the child dies or goes silent, what ran then is tried again one at a time;
an episode that ends its process alone is guilty, gets its outcome, and the others go on as before.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from proctor.engine.base import Listener
from proctor.engine.stop import Stop, heard_terminations
from proctor.errors import Exit, ProctorError, SandboxError
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.trial import Lease, RunStatus
from proctor.processes import describe_status, kill_tree
from proctor.runs.perf.executor import Guilt, perf_executor
from proctor.runs.perf.system import SystemSampler
from proctor.runs.running import ReadyRun, execute

BEAT_S = 0.5
"""Interval between two signs of life of the child."""
_BEAT, _BEGUN, _DONE = b".", b"+", b"-"
"""The sign of life on the pipe; a newline and the final message follow at the end."""
GRACE_S = 10.0
"""How much longer than an episode's time limit the event loop may hang."""

MakeListener = Callable[[], AbstractContextManager[Listener]]


@dataclass(slots=True)
class Ended:
    """How a child came to its end."""

    status: int = 0
    silent: bool = False
    """It was killed because its event loop hung."""
    said: dict[str, Any] = field(default_factory=dict)
    """Its final message; empty when it crashed."""


class Guard:
    """Keeps a child at work until every episode has an outcome."""

    def __init__(
        self,
        ready: ReadyRun,
        make_listener: MakeListener,
        sampler: SystemSampler,
        *,
        grace_s: float = GRACE_S,
    ) -> None:
        self.ready = ready
        self.make_listener = make_listener
        self.sampler = sampler
        self.silence_s = (ready.spec.timeout_s or 600.0) + grace_s
        self.guilty: dict[str, Guilt] = {}
        self._child: int | None = None

    def run(self) -> RunStatus:
        """Return when all is done or a person stopped it; raise what the harness itself ran into."""
        alone = 0
        for _ in range(3 * len(self.ready.plan) + 3):
            with self._forwarded_signals():
                ended = self._watch(*self._fork(alone))
            if ended.said:
                alone = 0
                status = self._heard(ended.said)
                if status is not RunStatus.PENDING:
                    return status
            else:
                alone = self._suspects(ended)
        raise SandboxError("the harness process keeps failing, and no single episode is the cause")

    def _heard(self, said: Mapping[str, Any]) -> RunStatus:
        if "error" in said:
            raise _Told(str(said["error"]), Exit(int(said["exit"])))
        if said["status"] == RunStatus.INTERRUPTED and said["turn_over"]:
            return RunStatus.PENDING
        return RunStatus(said["status"])

    def _suspects(self, ended: Ended) -> int:
        """Take back what ran when the child died: one is guilty, several are tried again alone."""
        now = time.time()
        with self.ready.resources.stores.borrow() as store:
            leases = [
                lease
                for worker in store.workers(self.ready.info.id)
                if f":{self._child}:" in worker
                for lease in store.release_worker(worker, again=True)
            ]
            lost = {
                row.record.key: row.record for row in store.attempts(self.ready.info.id) if not row.counts
            }
        how = "hung" if ended.silent else f"ended with {describe_status(ended.status)}"
        if not leases:
            raise SandboxError(f"the harness process {how} while no episode ran; see its output above")
        if len(leases) == 1:
            key = leases[0].key
            self.guilty[key] = Guilt(
                outcome=Outcome.AGENT_TIMEOUT if ended.silent else Outcome.AGENT_ERROR,
                message=f"the process {how} while only this episode ran in it",
                started_at=lost[key].started_at if key in lost else now,
                ended_at=now,
            )
            return 0
        return len(leases)

    def _fork(self, alone: int) -> tuple[int, int]:
        """Start a child; its id and the pipe on which it speaks.

        Nothing of this process is open then: both sides open what they use.
        """
        self.ready.resources.close()
        reader, writer = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            _be_child(self.ready, self.make_listener, self.guilty, alone, writer)
        os.close(writer)
        self._child = self.sampler.pid = pid
        return pid, reader

    def _watch(self, pid: int, reader: int) -> Ended:
        """Listen and sample until the child has ended, even if another process holds its end of the pipe."""
        ended, heard, text = Ended(), time.monotonic(), b""
        try:
            while True:
                ready, _, _ = select.select([reader], [], [], min(self.sampler.wait_s(), BEAT_S))
                self.sampler.tick()
                if ready:
                    piece = os.read(reader, 65536)
                    heard = time.monotonic()
                    text += piece
                    if not piece:
                        break
                elif _has_gone(pid):
                    text += _rest(reader)
                    break
                elif time.monotonic() - heard > self.silence_s and text.count(_BEGUN) > text.count(_DONE):
                    ended.silent = True
                    kill_tree(pid)
                    break
        finally:
            os.close(reader)
            _, ended.status = os.waitpid(pid, 0)
            self.sampler.sample()
        _, newline, last = text.partition(b"\n")
        if newline and not ended.silent:
            with suppress(ValueError):
                ended.said = json.loads(last)
        if not ended.said:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # what it had started and can no longer end
        return ended

    @contextmanager
    def _forwarded_signals(self) -> Iterator[None]:
        """The child decides what Ctrl-C means; this process stays to write down what came of it."""

        def forward(number: int, _: object) -> None:
            if self._child is not None:
                with suppress(ProcessLookupError):
                    os.kill(self._child, number)

        try:
            forwarded = (signal.SIGINT, *heard_terminations())
            before = {each: signal.signal(each, forward) for each in forwarded}
        except ValueError:  # not in the main thread, where signals do not arrive anyway
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _rest(reader: int) -> bytes:
    """What is still in the pipe; nothing is waited for."""
    os.set_blocking(reader, False)
    found = b""
    with suppress(BlockingIOError):
        while piece := os.read(reader, 65536):
            found += piece
    return found


def _has_gone(pid: int) -> bool:
    """Whether a child has ended; its status stays to be collected."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


class _Told(ProctorError):  # noqa: N818 - it carries somebody else's error
    """The child's error, with its exit code."""

    def __init__(self, message: str, code: Exit) -> None:
        super().__init__(message)
        self.exit_code = code


def _be_child(
    ready: ReadyRun, make_listener: MakeListener, guilty: Mapping[str, Guilt], alone: int, writer: int
) -> NoReturn:
    """Do the work and say how it went; never return into the parent's stack."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for each in heard_terminations():
        signal.signal(each, signal.SIG_DFL)
    with suppress(OSError):
        os.setpgid(0, 0)  # a Ctrl-C reaches it once, through the parent
    said = last_word(lambda: work(ready, make_listener, guilty, alone, writer))
    with suppress(OSError, ValueError):
        os.write(writer, b"\n" + json.dumps(said).encode() + b"\n")
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)


def last_word(begin: Callable[[], Coroutine[Any, Any, dict[str, Any]]]) -> dict[str, Any]:
    """The final message with the result; errors are sent, because they cannot be raised across processes."""
    try:
        return asyncio.run(begin())
    except ProctorError as error:
        return {"error": str(error), "exit": int(error.exit_code)}
    except KeyboardInterrupt:
        return {"error": "interrupted before the first episode", "exit": int(Exit.INTERRUPTED)}
    except BaseException:  # noqa: BLE001 - whatever it is, the parent must hear of it
        return {"error": f"the harness failed:\n{traceback.format_exc()}", "exit": int(Exit.INFRASTRUCTURE)}


async def work(
    ready: ReadyRun, make_listener: MakeListener, guilty: Mapping[str, Guilt], alone: int, writer: int
) -> dict[str, Any]:
    """Execute the run with a heartbeat. `alone`: run this many episodes one at a time, then stop."""
    stop = Stop()
    beating = asyncio.create_task(_beat(writer, stop))
    with make_listener() as listener, stop.on_signals():
        turn = _Turn(listener, alone, stop, writer)
        status = await execute(
            ready,
            listener=turn,
            stop=stop,
            parallel=1 if alone else ready.spec.parallel,
            open_executor=lambda ready, worker: perf_executor(ready, worker, guilty),
            goes_on=lambda: turn.over,
        )
    beating.cancel()
    return {"status": status.value, "turn_over": turn.over}


async def _beat(writer: int, stop: Stop) -> None:
    """Send a heartbeat; when the pipe is closed, the parent was killed and this process must end too."""
    while True:
        try:
            os.write(writer, _BEAT)
        except OSError:
            stop.request(times=2)
            return
        await asyncio.sleep(BEAT_S)


def _say(writer: int, word: bytes) -> None:
    with suppress(OSError):
        os.write(writer, word)


class _Turn:
    """Forwards events; with a number of episodes, stops the engine after that many."""

    def __init__(self, listener: Listener, left: int, stop: Stop, writer: int) -> None:
        self.listener = listener
        self.left = left
        self.stop = stop
        self.writer = writer
        self.over = False
        """Whether this guard stopped the engine, not a person."""

    def started(self, trial: PlannedTrial, lease: Lease) -> None:
        _say(self.writer, _BEGUN)
        self.listener.started(trial, lease)

    def ended(self, trial: PlannedTrial, record: AttemptRecord, counts: bool) -> None:
        _say(self.writer, _DONE)
        self.listener.ended(trial, record, counts)
        self.left -= 1
        if self.left == 0 and not self.stop.draining:
            self.over = True
            self.stop.request()
