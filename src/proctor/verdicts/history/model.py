"""A history as data: runs in order, a line of values per point, agent or task, and where each line moved."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One run of the series."""

    id: str
    at: float
    status: str
    commit: str = ""
    branch: str = ""
    dirty: bool = False
    trials: int = 0
    ended: int = 0
    broken: int = 0
    """Trials that the infrastructure or a provider broke."""
    left_out: str = ""
    """Why it is not in the statistics; empty when it is."""
    differs: str = ""
    """How the machine, Python or the tasks differ from the previous run in the statistics."""
    folder: str = ""
    """The run's folder, where its report is; for links only."""

    @property
    def version(self) -> str:
        """The commit in short, marked when the working tree had local changes."""
        return f"{self.commit[:10]}{'+' * self.dirty}" if self.commit else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """What one run says on one line."""

    value: float
    low: float | None = None
    high: float | None = None
    """Ends of the 95 % interval, where there is one."""
    n: int = 1
    """Iterations or rollouts behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A lasting change of level."""

    at: int
    """Index of the first run at the new level."""
    last: int
    """Index of the last run at the old level: the change happened between the two."""
    before: float
    after: float
    change: float
    """As a fraction of the level before; for shares the difference itself."""
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternating:
    """Two levels that a line goes back and forth between; neither is a lasting change."""

    low: float
    high: float
    switches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One thing that was measured in run after run."""

    name: str
    metric: str
    values: tuple[Value | None, ...]
    """One per run; None where the run has none or is left out."""
    moves: tuple[Move, ...] = ()
    levels: tuple[float | None, ...] = ()
    """The level that each value belongs to."""
    alternating: Alternating | None = None
    noise: float | None = None
    """Spread from run to run: a fraction, or for shares a difference."""
    main: bool = False
    """Whether the verdict is about it."""

    @property
    def is_share(self) -> bool:
        """Whether it is a pass rate or reward, which moves by percentage points."""
        return self.metric in {"pass_rate", "reward"}

    @property
    def known(self) -> list[int]:
        """The runs that have a value."""
        return [at for at, value in enumerate(self.values) if value is not None]

    @property
    def latest(self) -> Value | None:
        """The newest value."""
        return next((value for value in reversed(self.values) if value is not None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """One series."""

    name: str
    kind: str
    metric: str
    runs: tuple[Ran, ...]
    lines: tuple[Line, ...]
    """The main ones first."""
    notes: tuple[str, ...] = field(default=())
    """Notes about what is not shown."""
    clock: str = ""
    """Of times, where nobody named a metric: why this clock leads; empty where that needs no word."""

    @property
    def counted(self) -> list[Ran]:
        """The runs that are in the statistics."""
        return [run for run in self.runs if not run.left_out]

    @property
    def main(self) -> list[Line]:
        """The lines that the verdict is about."""
        return [line for line in self.lines if line.main]
