"""A worker process of one side, from its start to the last thing it left; the parent's end of the pipes."""

from __future__ import annotations

import ast
import marshal
import os
import random
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from proctor.disk import write_all
from proctor.errors import SideError
from proctor.model.lockstep import PathsAlike, ProcessLayout
from proctor.processes import full_environment, kill_tree
from proctor.trial.lockstep.same_path import SeenSide

_WORKER = Path(__file__).with_name("worker.py")
_PROCTOR = str(Path(__file__).parents[2])
_LAST_WORDS = 2000
_EXIT_GRACE_S = 5.0
MARSHAL = 2
"""A version that every interpreter of a side reads."""
PADDING = "PROCTOR_PADDING"
_PIECE_BYTES = (16, 480)
_ITS_OWN_WORDS = frozenset({"NotFoundError", "ParamError", "UsageError"})
"""Errors of ours that a worker meets while loading; they are whole sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Everything needed to start a worker of one side."""

    name: str
    """A or B, for messages."""
    label: str
    """The name that the user gave it."""
    python: str
    root: str
    """The folder whose code this side runs. All paths here are the real ones; `seen` has the others."""
    slug: str
    cwd: str
    path: tuple[str, ...] = ()
    """Folders to import from before anything installed."""
    file: str = ""
    """The experiment's file, or else its `module`; if neither finds it, `sources` are searched."""
    module: str = ""
    sources: tuple[str, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    gc: bool = False
    """Whether the garbage collector may run inside slots."""
    foreign: tuple[str, ...] = ()
    """Folders from which this side must not import."""
    shared: tuple[str, ...] = ()
    """Folders inside those from which it may."""
    installed: bool = False
    """Whether the code is what the interpreter has installed, wherever that is."""
    pycache: str = ""
    recipe: str = ""
    """How a worker of this side made the experiment, for the next one to repeat; only it can read that."""
    slow: float = 0.0
    """Deliberate slowness, as a fraction of the work."""
    seen: SeenSide | None = None
    """Where a process of this side sees the code and its interpreter; None: where they are."""
    paths: PathsAlike = "same"
    """How alike that is to the other side."""
    scratch: str | None = None
    """Where its processes get their folders."""

    @property
    def who(self) -> str:
        """For the front of a message."""
        return f"side {self.name} ({self.label})"

    @property
    def seen_root(self) -> str:
        """The folder of the code, as a process of this side sees it."""
        return self.seen.root if self.seen else self.root

    def as_seen(self, path: str) -> str:
        """A path of ours, as a process of this side sees it."""
        return _moved(path, self.root, self.seen_root)

    def as_real(self, path: str) -> str:
        """The inverse of `as_seen`."""
        return _moved(path, self.seen_root, self.root)

    def owns(self, path: str) -> bool:
        """Whether a real path is of this side's code; its environment may be in its folder, and is not."""
        environment = os.path.dirname(os.path.dirname(self.python))  # noqa: PTH120 - text in, text out
        installed = environment.startswith(f"{self.root}/") and path.startswith(f"{environment}/")
        return path.startswith(f"{self.root}/") and not installed

    def second(self) -> Side:
        """The same side for the second A of an A/A pair: among links it has a name of its own."""
        if not self.seen or not self.seen.second_root:
            return self
        return replace(self, seen=replace(self.seen, root=self.seen.second_root))


def _moved(path: str, old: str, new: str) -> str:
    return new + path[len(old) :] if path == old or path.startswith(f"{old}/") else path


class Worker:
    """One process of one side; it leaves nothing behind."""

    def __init__(
        self, side: Side, layout: ProcessLayout, *, pass_fds: Sequence[int] = (), listens: bool = False
    ) -> None:
        self.side = side
        self.layout = layout
        self.listens = listens
        self._done = False
        self._buffer = b""
        with ExitStack() as stack, ExitStack() as theirs:
            folder = TemporaryDirectory(prefix="proctor-side-", dir=side.scratch, ignore_cleanup_errors=True)
            self._folder = stack.enter_context(folder)
            self._stderr = stack.enter_context(TemporaryFile())
            order_reader, self._orders = _pipe(theirs, stack)
            self._answers, answer_writer = _pipe(stack, theirs)
            life_reader, _ = _pipe(theirs, stack)
            self.process = self._start((order_reader, answer_writer, life_reader), pass_fds)
            self._handle = os.pidfd_open(self.process.pid)
            stack.callback(os.close, self._handle)
            stack.callback(self._end)
            theirs.close()
            self.send(self._job())
            self._cleanup = stack.pop_all()

    def _start(self, fds: Sequence[int], pass_fds: Sequence[int]) -> subprocess.Popen[bytes]:
        side = self.side
        enter, python = (side.seen.enter, side.seen.python) if side.seen else ((), side.python)
        try:
            return subprocess.Popen(
                # Numbers of equal length: the words of a command are part of its layout.
                [*enter, python, "-P", str(_WORKER), *(f"{fd:06}" for fd in fds)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                cwd=self._folder,
                env=environment(side, self.layout, full_environment()),
                pass_fds=(*fds, *pass_fds),
                start_new_session=True,
            )
        except OSError as error:
            raise SideError(f"{side.who}: {side.python} cannot be started: {error}") from error

    def _job(self) -> dict[str, Any]:
        side = self.side
        return {
            **{name: getattr(side, name) for name in ("slug", "module", "seed", "installed", "recipe")},
            **{name: side.as_seen(getattr(side, name)) for name in ("root", "cwd", "file")},
            "sources": [side.as_seen(source) for source in side.sources],
            "params": dict(side.params),
            "pycache": side.pycache,
            "own_pycache": side.seen.pycache if side.seen else "",
            "heap_seed": self.layout.heap_seed,
            "listens": self.listens,
            "proctor": _PROCTOR,
            "run_dir": self._folder,
            "run_id": f"ab-{side.name.lower()}",
        }

    def send(self, order: Mapping[str, Any]) -> None:
        """Give an order; a worker that is gone is noticed when its answer is read."""
        data = marshal.dumps(dict(order), MARSHAL).hex().encode() + b"\n"
        with suppress(BrokenPipeError):
            write_all(self._orders, data)

    def fileno(self) -> int:
        """Where its answers arrive."""
        return self._answers

    def receive(self) -> dict[str, Any] | None:
        """An answer, if a whole one has arrived. Raises when the worker failed or died."""
        chunk = os.read(self._answers, 1 << 20)
        self._buffer += chunk
        if not chunk and b"\n" not in self._buffer:
            raise self._died()
        line, newline, rest = self._buffer.partition(b"\n")
        if not newline:
            return None
        self._buffer = rest
        message: dict[str, Any] = ast.literal_eval(line.decode())
        if "failure" in message:
            raise self._failed(message["failure"])
        self._done = "result" in message
        return message

    def close(self) -> None:
        """End it and everything it started. One that has done its work may leave by itself first."""
        self._cleanup.close()

    def _end(self) -> None:
        if not self._ended(_EXIT_GRACE_S if self._done else 0):
            kill_tree(self.process.pid)
        # A process that is not yet collected keeps the number of its group from everyone else.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _ended(self, within_s: float) -> bool:
        poller = select.poll()
        poller.register(self._handle, select.POLLIN)
        return bool(poller.poll(within_s * 1000))

    def _failed(self, failure: Mapping[str, str]) -> SideError:
        if failure["type"] in _ITS_OWN_WORDS:
            return self._error(failure["message"])
        what = f"{failure['phase']} raised {failure['type']}: {failure['message']}"
        return self._error(f"{what}\n{failure['traceback'].rstrip()}{self._last_words()}")

    def _error(self, text: str) -> SideError:
        """With the paths that a person knows."""
        return SideError(f"{self.side.who}: {text.replace(self.side.seen_root, self.side.root)}")

    def _died(self) -> SideError:
        how = "closed its pipe"
        if self._ended(_EXIT_GRACE_S):
            state = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
            how = _how(state) if state else how
        return self._error(f"its process {how} before it had answered{self._last_words()}")

    def _last_words(self) -> str:
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - _LAST_WORDS))
        words = self._stderr.read().decode(errors="replace").strip()
        return f"\nit had written:\n{words}" if words else ""


def _pipe(reading: ExitStack, writing: ExitStack) -> tuple[int, int]:
    """A pipe whose ends are closed by their owners."""
    reader, writer = os.pipe()
    reading.callback(os.close, reader)
    writing.callback(os.close, writer)
    return reader, writer


def wait_for(workers: Sequence[Worker], timeout_s: float) -> list[Worker]:
    """Those of the workers that have something to read, or have ended; none when the time is over."""
    poller = select.poll()
    for worker in workers:
        poller.register(worker.fileno(), select.POLLIN)
    ready = {fd for fd, _ in poller.poll(max(0.0, timeout_s) * 1000)}
    return [worker for worker in workers if worker.fileno() in ready]


def gather(workers: Sequence[Worker], *, timeout_s: float, doing: str) -> list[dict[str, Any]]:
    """One answer of each worker, in their order. The first failure of any is raised."""
    deadline = time.monotonic() + timeout_s
    answers: dict[Worker, dict[str, Any]] = {}
    while len(answers) < len(workers):
        # One that was abandoned has nothing more to say; the one that left it alone has.
        missing = [worker for worker in workers if worker not in answers]
        ready = wait_for(missing, deadline - time.monotonic())
        if not ready:
            late = " or ".join(dict.fromkeys(worker.side.who for worker in missing))
            raise SideError(
                f"{late}: {doing} did not end within {timeout_s:.0f} s; "
                "a larger timeout_s in the spec allows more"
            )
        for worker in ready:
            answer = worker.receive()
            if answer is not None:
                answers[worker] = answer
    if any("abandoned" in answer for answer in answers.values()):
        raise SideError("the workers of a pair lost contact; measure again")
    return [answers[worker] for worker in workers]


def _how(state: os.waitid_result) -> str:
    if state.si_code == os.CLD_EXITED:
        return f"ended with exit code {state.si_status}"
    return f"was ended by {signal.Signals(state.si_status).name}"


def environment(side: Side, layout: ProcessLayout, base: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment, with this side's folders first to import from, and what the layout says."""
    env = {
        name: value for name, value in base.items() if name not in {"PYTHONDONTWRITEBYTECODE", "PYTHONPATH"}
    }
    if side.path:
        env["PYTHONPATH"] = os.pathsep.join(map(side.as_seen, side.path))
    env["PYTHONHASHSEED"] = str(layout.hash_seed or 0)
    return padded(env, layout)


def padded(env: Mapping[str, str], layout: ProcessLayout) -> dict[str, str]:
    """An environment with the padding of a layout.

    It moves the stack; and in variables of many sizes it also moves what a program makes of its environment,
    such as the strings of a Python that we did not start as a worker.
    """
    rng = random.Random(layout.heap_seed)  # noqa: S311 - of sizes, not of secrets
    left, sizes = layout.env_bytes, list[int]()
    while left > 0:
        sizes.append(min(left, rng.randrange(*_PIECE_BYTES)))
        left -= sizes[-1]
    return {**env, **{f"{PADDING}_{number}": "x" * size for number, size in enumerate(sizes)}}
