"""The instruments of one pass: those inside the measured process, and those that look at it from its lane.

One that fails is dropped and named; the measurement goes on.
"""

from __future__ import annotations

import os
import time

from proctor.errors import ProctorError
from proctor.trial.point.values import Checker, RefusedError, message_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any


class _Instruments:
    """Some of the instruments that a spec asks for, in its order."""

    samplers = False
    """Whether these are the ones that look from outside."""

    def __init__(self, asked: Sequence[Mapping[str, Any]], folder: str) -> None:
        self._asked = asked
        self._folder = folder
        self._working: dict[str, Any] = {}
        self._errors: dict[str, str] = {}
        self.context: Any = None
        """What the experiment is given, for instruments that take it too."""

    def open(self) -> None:
        """Make them."""
        if not self._asked:
            return
        from pathlib import Path

        from proctor.instruments.base import Sampler, create
        from proctor.model.spec import InstrumentSpec

        for each in self._asked:
            name = each["name"]
            instrument = self._try(name, create, InstrumentSpec(**each))
            if instrument is None or isinstance(instrument, Sampler) is not self.samplers:
                continue
            if hasattr(instrument, "context"):
                instrument.context = self.context
            self._working[name] = instrument
            self._try(name, instrument.open, Path(self._folder, name))

    def close(self) -> dict[str, Any]:
        """Summaries by name, and why any of them failed."""
        summaries = {
            name: {"summary": self._try(name, _plain, instrument.close)}
            for name, instrument in list(self._working.items())
        }
        self._working.clear()
        return summaries | {name: {"error": error} for name, error in self._errors.items()}

    def _try(self, name: str, action: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return action(*arguments)
        except (ProctorError, RefusedError) as error:
            self._errors[name] = message_of(error)
        except BaseException as error:  # noqa: BLE001 - an instrument is foreign code; the trial goes on
            self._errors[name] = f"{type(error).__name__}: {message_of(error)}"
        self._working.pop(name, None)
        return None


class InstrumentSet(_Instruments):
    """Those inside. They start in the order of the spec and stop in the reverse: the last disturbs least."""

    def __init__(self, asked: Sequence[Mapping[str, Any]], folder: str) -> None:
        super().__init__(asked, folder)
        self._entered: list[str] = []

    def enter(self) -> None:
        """Just before the timer."""
        for name, instrument in list(self._working.items()):
            self._entered.append(name)
            self._try(name, instrument.__enter__)

    def exit(self) -> None:
        """Just after the timer; safe to call when some were never entered."""
        for name in reversed(self._entered):
            if name in self._working:
                self._try(name, self._working[name].__exit__, None, None, None)
        self._entered.clear()

    def metrics(self) -> dict[str, float]:
        """Numbers of the last iteration, each under its instrument's name."""
        found: dict[str, float] = {}
        for name, instrument in list(self._working.items()):
            given = self._try(name, _plain, instrument.metrics)
            found |= {f"{name}.{metric}": value for metric, value in (given or {}).items()}
        return found


class Samplers(_Instruments):
    """Those that look at a process from its lane, each at its own pace."""

    samplers = True

    def __init__(self, asked: Sequence[Mapping[str, Any]], folder: str, pid: int) -> None:
        super().__init__(asked, folder)
        self._pid = pid
        self.open()
        self._due = dict.fromkeys(self._working, 0.0)
        self.look()

    def wait_s(self) -> float:
        """Time until the next look."""
        due = min((self._due[name] for name in self._working), default=float("inf"))
        return max(0.0, due - time.monotonic())

    def look(self) -> None:
        """Let each that is due look once."""
        for name, sampler in list(self._working.items()):
            now = time.monotonic()
            if self._due[name] <= now:
                self._due[name] = now + sampler.interval_s
                self._try(name, sampler.sample, self._pid)


def _plain(give: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """What an instrument reports is checked like what an experiment returns."""
    return Checker().plain(give())


def read_end() -> dict[str, float]:
    """What this process has used, at one end of its iterations; what the kernel does not tell is 0.

    A sampler looks at its own pace, and a point that is over between two looks would have no figures. Read
    only when a sampler was asked for, and outside the timer.
    """
    children = os.times()
    moved = _fields("/proc/self/io")
    state = _fields("/proc/self/status")
    return {
        "at_s": time.monotonic(),
        "cpu_s": time.process_time() + children.children_user + children.children_system,
        "rss_bytes": state.get("VmRSS", 0) * 1024,
        "threads": state.get("Threads", 0),
        "read_bytes": moved.get("read_bytes", 0),
        "write_bytes": moved.get("write_bytes", 0),
    }


def _fields(file: str) -> dict[str, int]:
    """`name: number` lines of a file of the kernel."""
    try:
        with open(file) as lines:  # noqa: PTH123 - without pathlib, in the measured process
            parts = [line.split() for line in lines]
    except OSError:
        return {}
    return {part[0].rstrip(":"): int(part[1]) for part in parts if len(part) > 1 and part[1].isdigit()}


def with_ends(summary: Mapping[str, Any], ends: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """A sampler's summary with the two readings in it. With few looks they alone tell the CPU."""
    first, last = ends["start"], ends["end"]
    looks = int(summary.get("samples", 0))
    found = {**summary, "samples": looks + 2}
    for name, read in (("rss_bytes_peak", "rss_bytes"), ("threads_peak", "threads")):
        found[name] = max(summary.get(name, 0), first[read], last[read])
    for name in ("read_bytes", "write_bytes"):
        found[name] = max(summary.get(name, 0), last[name])
    mean = summary.get("rss_bytes_mean", 0.0) * looks + first["rss_bytes"] + last["rss_bytes"]
    found["rss_bytes_mean"] = mean / (looks + 2)
    took_s = last["at_s"] - first["at_s"]
    if took_s > 0 and looks < 3:
        found["cpu_percent_mean"] = round(100 * (last["cpu_s"] - first["cpu_s"]) / took_s, 3)
    return found
