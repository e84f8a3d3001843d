"""Progress of agents on tasks: a grid of tasks × rollouts, with rate and time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from proctor.cli.live import line_for
from proctor.cli.table import printable, seconds
from proctor.cli.terminal import direct
from proctor.model.arms import arm_of, named, swept_variables
from proctor.model.document import Look
from proctor.model.outcome import is_pass
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.trial import Lease

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live as RichLive
    from rich.text import Text

RUNNING = "▸"
_QUIET_S = 20.0
_LONGEST_LINE = 4096
_LABEL = 34
_STYLES: dict[Look, str] = {
    "pass": "green",
    "part": "green",
    "fail": "red",
    "own": "red",
    "error": "bold yellow",
    "none": "bold yellow",
}


class TaskLive:
    """Listens to the engine. On a terminal a live grid; in a log how far it is, and errors; -v says more."""

    def __init__(
        self, trials: Iterable[PlannedTrial], *, done: int = 0, verbose: int = 0, quiet: bool = False
    ) -> None:
        self.grid = Grid(list(trials))
        self.total = len(self.grid.place)
        self.done = done
        self.verbose = verbose
        self.quiet = quiet
        self.counts = dict.fromkeys(("passed", "not passed", "errors", "left out"), 0)
        self.running: dict[str, PlannedTrial] = {}
        self.began = time.monotonic()
        self._fresh = 0
        self._last_line = self.began
        self._streams: dict[tuple[str, str], bytes] = {}
        self._live: RichLive | None = None
        self._console: Console | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty() and not self.quiet:
            from rich.console import Console
            from rich.live import Live

            self._console = Console(file=direct(sys.stderr))
            self._live = Live(
                get_renderable=self._render, console=self._console, refresh_per_second=8, transient=True
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def started(self, trial: PlannedTrial, lease: Lease) -> None:
        """Mark it in the grid."""
        self.running[trial.key] = trial
        self.grid.put(trial, RUNNING, "cyan")
        if self.verbose > 1:
            again = f" (attempt {lease.attempt})" if lease.attempt > 1 else ""
            self._print(f"{printable(trial.label)}: started{again}")

    def ended(self, trial: PlannedTrial, record: AttemptRecord, counts: bool) -> None:
        """Fill its field, count it, and say what is news."""
        from proctor.render.results.cells import PENDING, glyph, look

        self.running.pop(trial.key, None)
        self._flush(trial)
        if counts:
            self.done += 1
            self._fresh += 1
            self.counts[_kind(record)] += 1
            self.grid.put(trial, glyph(record.outcome), _STYLES[look(record.outcome, record.reward)])
        else:
            self.grid.put(trial, PENDING, "dim")
        if self.quiet:
            return
        if self._is_news(record, counts):
            self._print(printable(line_for(trial.label, trial, record, counts, self.done, self.total)))
        elif self._live is None and self.done < self.total and time.monotonic() - self._last_line > _QUIET_S:
            self._print(self.status())

    def say(self, text: str) -> None:
        """A line from the command itself."""
        if not self.quiet:
            self._print(printable(text))

    def logged(self, trial: PlannedTrial, log: str, data: bytes) -> None:
        """Whole lines of what an agent or a verifier printed, each with its trial in front."""
        key = (trial.key, log)
        *lines, rest = (self._streams.get(key, b"") + data).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            lines, rest = [*lines, rest], b""
        self._streams[key] = rest
        for line in lines:
            self._stream(trial, log, line)

    def status(self) -> str:
        """How far it is, errors apart."""
        shown = [f"{self.done}/{self.total}", f"✓ {self.counts['passed']}", f"✗ {self.counts['not passed']}"]
        shown += [f"errors {self.counts['errors']}"] if self.counts["errors"] else []
        shown += [f"running {len(self.running)}"] if self.running else []
        return "  ".join([*shown, self._eta()])

    def _eta(self) -> str:
        rate = self._fresh / max(1e-9, time.monotonic() - self.began)
        if not rate:
            return "no trial has ended yet"
        shown = f"{rate:.1f} trials/s" if rate >= 1 else f"{rate * 60:.1f} trials/min"
        left = f"  {seconds((self.total - self.done) / rate)} left" if self.done < self.total else ""
        return f"{shown}{left}"

    def _is_news(self, record: AttemptRecord, counts: bool) -> bool:
        if self.verbose or not counts:
            return True
        return record.outcome.error and self.counts["errors"] <= 20

    def _flush(self, trial: PlannedTrial) -> None:
        for key in [key for key in self._streams if key[0] == trial.key]:
            rest = self._streams.pop(key)
            if rest:
                self._stream(trial, key[1], rest)

    def _stream(self, trial: PlannedTrial, log: str, line: bytes) -> None:
        name = log.removesuffix(".txt").removesuffix(".log")
        shown = line.decode(errors="replace").rstrip("\r").expandtabs(4)
        self._print(f"{printable(trial.label)} {name}│ {printable(shown)}")

    def _print(self, line: str) -> None:
        self._last_line = time.monotonic()
        if self._console:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def _render(self) -> Text:
        from rich.text import Text

        assert self._console is not None
        text = self.grid.text(self._console.width, self._console.height - 4)
        text.append(Text(self.status(), style="bold", no_wrap=True, overflow="ellipsis"))
        return text


def _kind(record: AttemptRecord) -> str:
    if not record.outcome.scored:
        return "errors" if record.outcome.error else "left out"
    return "passed" if is_pass(record.outcome, record.reward) else "not passed"


class Grid:
    """Where each trial's field is, and what it shows."""

    def __init__(self, trials: list[PlannedTrial]) -> None:
        from proctor.render.results.cells import PENDING

        self.rows: dict[str, dict[str, list[tuple[str, str]]]] = {}
        self.place: dict[str, tuple[str, str, int]] = {}
        self.touched: dict[str, int] = {}
        swept = swept_variables(trials)
        names = named((arm_of(trial, swept) for trial in trials), " · ")
        for trial in trials:
            arm = names[arm_of(trial, swept)]
            fields = self.rows.setdefault(trial.subject, {}).setdefault(arm, [])
            self.place[trial.key] = (trial.subject, arm, len(fields))
            fields.append((PENDING, "dim"))
        self.arms = list(dict.fromkeys(arm for row in self.rows.values() for arm in row))

    def put(self, trial: PlannedTrial, sign: str, style: str) -> None:
        """Put a sign in a trial's field."""
        subject, arm, at = self.place[trial.key]
        self.rows[subject][arm][at] = (sign, style)
        self.touched.pop(subject, None)
        self.touched[subject] = 1

    def text(self, width: int, height: int) -> Text:
        """The rows that fit; where not all do, those in which something has happened last."""
        from rich.text import Text

        text = Text(no_wrap=True, overflow="ellipsis")
        names = list(self.rows)
        if len(names) > max(1, height - 2):
            recent = list(reversed(self.touched))[: max(1, height - 3)]
            shown = [name for name in names if name in set(recent or names[: height - 3])]
        else:
            shown = names
        left = min(_LABEL, max((len(name) for name in shown), default=0))
        columns = self._columns(max(10, width - left - 2))
        if len(self.arms) > 1:
            head = "  ".join(_cut(arm, size).ljust(size) for arm, size in columns.items())
            text.append(f"{'':<{left}}  {head}\n", style="dim")
        for name in shown:
            text.append(f"{_cut(printable(name), left):<{left}}")
            for arm, size in columns.items():
                text.append("  ")
                fields = self.rows[name].get(arm, [])
                for sign, style in fields[-size:]:
                    text.append(sign, style=style)
                text.append(" " * max(0, size - len(fields)))
            text.append("\n")
        if len(shown) < len(names):
            text.append(f"… and {len(names) - len(shown)} more tasks\n", style="dim")
        return text

    def _columns(self, room: int) -> dict[str, int]:
        """How wide each arm is: its rollouts or its name; all cut alike when they do not fit."""
        wanted = {
            arm: max(*(len(row.get(arm, ())) for row in self.rows.values()), min(len(arm), 24), 1)
            for arm in self.arms
        }
        if sum(wanted.values()) + 2 * len(wanted) <= room:
            return wanted
        each = max(4, room // len(wanted) - 2)
        return {arm: min(size, each) for arm, size in list(wanted.items())[: max(1, room // (each + 2))]}


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"
