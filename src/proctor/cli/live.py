"""Progress of a run: a live line on a terminal, clean lines in a log."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from proctor.cli.table import printable, seconds
from proctor.cli.terminal import direct
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.trial import Lease

if TYPE_CHECKING:
    from rich.progress import Progress

LINES_UP_TO = 200
"""Runs with more trials than this only say how far they are."""
_QUIET_S = 10.0
EVERY_S = 2.0
"""In a log a point has a line unless another was printed less than this ago: the table at the end has all."""
TICKS = {Outcome.PASSED: "✓", Outcome.PARTIAL: "◐", Outcome.FAILED: "✗"}


class Live:
    """Listens to the engine and shows progress on standard error."""

    def __init__(
        self,
        total: int,
        *,
        done: int = 0,
        verbose: bool = False,
        quiet: bool = False,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self.total = total
        self.labels = labels or {}
        """Trial key → what sets it apart from the others; else its own label is shown."""
        self.done = done
        self.counts: Counter[Outcome] = Counter()
        self.verbose = verbose
        self.quiet = quiet
        self.began = time.monotonic()
        self._last_line = self.began
        self._fresh = 0
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty() and not self.quiet:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.description}", markup=False),
                TimeRemainingColumn(),
                console=Console(file=direct(sys.stderr)),
                transient=True,
            )
            self._task = self._bar.add_task("starting", total=self.total, completed=self.done)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def started(self, trial: PlannedTrial, lease: Lease) -> None:
        """Show what runs now."""
        if self._bar:
            again = f" (attempt {lease.attempt})" if lease.attempt > 1 else ""
            self._bar.update(
                self._task, description=f"{self._tally()}  {_cut(printable(self._label(trial)))}{again}"
            )

    def ended(self, trial: PlannedTrial, record: AttemptRecord, counts: bool) -> None:
        """Count it and, where wanted, print a line."""
        if counts:
            self.done += 1
            self._fresh += 1
            self.counts[record.outcome] += 1
        if self._bar:
            self._bar.update(self._task, completed=self.done, description=self._tally())
        if self.quiet:
            return
        if self._wants_line(record, counts):
            self._print(line_for(self._label(trial), trial, record, counts, self.done, self.total))
        elif self._silent_s() > _QUIET_S:
            self._print(f"[{self.done}/{self.total}] {self._tally()}, {self._eta()}")

    def say(self, text: str) -> None:
        """A line from the command itself."""
        if not self.quiet:
            self._print(text)

    def _wants_line(self, record: AttemptRecord, counts: bool) -> bool:
        if self.verbose or not counts:
            return True
        if record.outcome is not Outcome.PASSED:
            return self.counts[record.outcome] <= 20
        if self._bar or self.done >= self.total:  # what has ended is told by the table
            return False
        return self.total <= LINES_UP_TO and self._silent_s() >= EVERY_S

    def _silent_s(self) -> float:
        return time.monotonic() - self._last_line

    def _label(self, trial: PlannedTrial) -> str:
        return self.labels.get(trial.key) or trial.label

    def _print(self, line: str) -> None:
        self._last_line = time.monotonic()
        if self._bar:
            self._bar.console.print(printable(line), markup=False, highlight=False)
        else:
            print(line, file=sys.stderr, flush=True)

    def _tally(self) -> str:
        return ", ".join(f"{count} {outcome}" for outcome, count in self.counts.most_common()) or "running"

    def _eta(self) -> str:
        rate = self._fresh / max(1e-9, time.monotonic() - self.began)
        if not rate:
            return "no trial has ended yet"
        left = self.total - self.done
        return f"{rate:.1f} trials/s" + (f", {seconds(left / rate)} left" if left else "")


def line_for(
    label: str, trial: PlannedTrial, record: AttemptRecord, counts: bool, done: int, total: int
) -> str:
    """One attempt as one line."""
    width = len(str(total))
    tick = TICKS.get(record.outcome, "!")
    parts = [f"[{done:>{width}}/{total}] {tick} {label}: {record.outcome}"]
    duration = record.metrics.get("duration_s", {})
    if trial.kind == "experiment" and duration.get("count"):
        parts.append(f"median {seconds(duration['p50'])} (n={duration['count']})")
    elif trial.kind == "task":
        parts.append(seconds(record.took_s))
    if record.failure:
        parts.append(_cut(record.failure.in_words, 400))
    if not counts:
        parts.append("will be tried again" if record.outcome.retryable else "not counted")
    return ", ".join(parts)


def _cut(text: str, width: int = 60) -> str:
    first = text.splitlines()[0] if text else ""
    return first if len(first) <= width else first[: width - 1] + "…"
