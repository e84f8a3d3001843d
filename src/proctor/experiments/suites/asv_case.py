"""One case of an asv benchmark: prepared as asv prepares it, called as often as the harness wants."""

from __future__ import annotations

import gc
import os
import pickle
import resource
import signal
import subprocess
import sys
import types
from contextlib import contextmanager

from proctor.experiments.suites import asv
from proctor.processes import full_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

TIMEOUT_S = 60.0
"""As asv has it, where the suite says nothing."""
CACHE = "PROCTOR_SUITE_CACHE"
"""A variable with the folder in which what `setup_cache` returned is kept from process to process."""
_TIMERAW = "interpreter's start included: the code of a timeraw benchmark runs in a process of its own"


class SkippedError(Exception):
    """The suite itself says that this benchmark is not to be run."""


class Case:
    """One benchmark with one combination of its parameters."""

    def __init__(self, suite: str, name: str, case: str) -> None:
        self.suite = suite
        self.benchmark = asv.find(suite, name)
        cases = self.benchmark.cases()
        if case not in cases:
            raise LookupError(f"{name} has no case {case or 'without parameters'}")
        self.arguments = cases[case]
        self.timeout_s = float(self.benchmark.get("timeout") or TIMEOUT_S)
        self.number = int(self.benchmark.get("number") or 0) if self.benchmark.kind == "time" else 1

    def set_up(self, folder: str) -> None:
        """`setup_cache` and every `setup`. The current folder is a temporary one, as with asv."""
        os.makedirs(folder, exist_ok=True)
        os.chdir(folder)
        make_cache = self.benchmark.get("setup_cache")
        if make_cache:
            self.arguments = (self._cached(make_cache), *self.arguments)
        self.prepare()

    def prepare(self) -> None:
        """Every `setup`, the module's first."""
        try:
            for each in self.benchmark.every("setup"):
                each(*self.arguments)
        except NotImplementedError as error:
            raise SkippedError(str(error) or "setup raised NotImplementedError") from error

    def tear_down(self) -> None:
        """Every `teardown`, the module's last."""
        for each in reversed(self.benchmark.every("teardown")):
            each(*self.arguments)

    def again(self, _context: Any) -> None:
        """Before each slot of a benchmark that says how often it may be called between two setups."""
        self.tear_down()
        self.prepare()

    def call(self) -> Callable[[Any], dict[str, Any] | None]:
        """What the harness calls."""
        function, arguments, kind = self.benchmark.function, self.arguments, self.benchmark.kind
        if kind == "time":
            return _timed(function, arguments)
        if kind == "timeraw":
            return _in_own_process(function(*arguments))
        return {"mem": self._size, "peakmem": self._peak, "track": self._value}[kind]

    def notes(self) -> tuple[str, ...]:
        """What a reader should know."""
        unit = self.benchmark.get("unit")
        said = [_TIMERAW] if self.benchmark.kind == "timeraw" else []
        return (*said, *([f"unit of value: {unit}"] if self.benchmark.kind == "track" and unit else ()))

    def _size(self, _context: Any) -> dict[str, Any]:
        return {"size_bytes": size_of(self.benchmark.function(*self.arguments))}

    def _peak(self, _context: Any) -> dict[str, Any]:
        self.benchmark.function(*self.arguments)
        return {"peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}

    def _value(self, _context: Any) -> dict[str, Any]:
        with limit(self.timeout_s, "the benchmark"):
            return {"value": self.benchmark.function(*self.arguments)}

    def _cached(self, make: Callable[[], Any]) -> Any:
        """What `setup_cache` returns: made once per version of the code, in a folder that its users share."""
        home = os.environ.get(CACHE)
        if not home:
            return make()
        name = "".join(char if char.isalnum() else "-" for char in f"{self.suite}-{make.__qualname__}")
        folder = os.path.join(home, f"{name[-150:]}-{os.path.getmtime(make.__code__.co_filename)}")
        os.makedirs(folder, exist_ok=True)
        os.chdir(folder)
        kept = os.path.join(folder, "proctor-setup-cache.pickle")
        if os.path.isfile(kept):
            with open(kept, "rb") as file:
                return pickle.load(file)  # noqa: S301 - this suite wrote it, in a folder of ours
        value = make()
        partial = f"{kept}.{os.getpid()}"
        with open(partial, "wb") as file:
            pickle.dump(value, file)
        os.replace(partial, kept)
        return value


def _timed(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[[Any], None]:
    if not arguments:

        def once(_context: Any) -> None:
            function()

        return once

    def once_with(_context: Any) -> None:
        function(*arguments)

    return once_with


def _in_own_process(code: str | tuple[str, ...]) -> Callable[[Any], None]:
    """A call that runs the code in a fresh interpreter; of two texts the second is the setup."""
    statement, *setup = (code,) if isinstance(code, str) else code
    parts = [*setup, statement]
    program = "\n".join(map(_unindented, parts))

    def once(_context: Any) -> None:
        done = subprocess.run(
            [sys.executable, "-c", program],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=full_environment(),
        )
        if done.returncode:
            raise RuntimeError(done.stderr.decode(errors="replace")[-2000:].strip())

    return once


def _unindented(text: str) -> str:
    from textwrap import dedent

    return dedent(text).strip()


@contextmanager
def limit(seconds: float, what: str) -> Iterator[None]:
    """Raise TimeoutError in the midst of whatever runs, when it has run for too long."""

    def late(_signum: int, _frame: Any) -> None:
        raise TimeoutError(f"{what} took more than the {seconds:g} s that the suite allows")

    before = signal.signal(signal.SIGALRM, late)
    other = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *other)
        signal.signal(signal.SIGALRM, before)


_SHARED = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.FrameType)


def size_of(value: Any) -> int:
    """Bytes of an object and of all that it alone refers to; classes, functions and modules are shared."""
    seen, waiting, total = {id(value)}, [value], 0
    while waiting:
        each = waiting.pop()
        total += sys.getsizeof(each)
        for referred in gc.get_referents(each):
            if id(referred) not in seen and not isinstance(referred, _SHARED):
                seen.add(id(referred))
                waiting.append(referred)
    return total
