"""What a lockstep pair recorded: two processes that took turns on one CPU, slot by slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Clock = Literal["cpu", "wall"]
PathsAlike = Literal["same", "equal length", "different"]
"""How alike the paths are at which the processes of a pair see their code."""

SLOT_FIELDS = ("wall_ns", "cpu_ns", "involuntary", "voluntary", "faults", "waited_ns", "children_ns")
"""The columns of a slot in a file; files of earlier versions lack the last."""
AT_ONCE = 0.1
"""Code whose threads and processes want a CPU at the same time for more than this share of their CPU time
runs in parallel: pinned to one CPU it would wait for itself."""
READING_NS = 10_000
"""What reading the clocks may add to the CPU time of a slot and not to its wall time."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One turn of one worker: `loops` calls, timed together."""

    wall_ns: int
    cpu_ns: int
    """Of all threads and of the processes that the code started."""
    involuntary: int = 0
    """How often the kernel took the CPU away."""
    voluntary: int = 0
    """How often the code gave it up: it slept, or waited for a file or a lock."""
    faults: int = 0
    waited_ns: int = 0
    """Ready to run, but without a CPU: all threads and children together. 0 where the kernel does not say."""
    children_ns: int = 0
    """The part of `cpu_ns` that processes spent which the code started."""

    @property
    def elapsed_ns(self) -> int:
        """Wall time without the time in which other programs had the CPU; right for one task at a time."""
        return max(self.wall_ns - self.waited_ns, min(self.cpu_ns, self.wall_ns))

    @property
    def at_once(self) -> float:
        """For which share of the CPU time more than one thread or process ran or wanted to."""
        over_ns = self.cpu_ns + self.waited_ns - self.wall_ns - READING_NS
        return max(0.0, over_ns / max(self.cpu_ns, 1))

    def row(self) -> list[int]:
        """As it is written, in the order of SLOT_FIELDS."""
        return [getattr(self, name) for name in SLOT_FIELDS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How the workers of a pair share the time; the same for both sides."""

    loops: int
    """Calls per slot, calibrated on side A."""
    warmup: int = 2
    """Slots that are measured and dropped."""
    kept: int = 20
    lead: int = 0
    """Untimed calls before each slot: they fill the caches that the other side had emptied."""


class ProcessLayout(NamedTuple):
    """What was drawn for one process, because where its memory lies decides how fast it is."""

    hash_seed: int | None = None
    """Equal within a pair: it decides how much work sets and dictionaries do. None: left to the program."""
    env_bytes: int = 0
    """Padding of the environment, which moves the stack."""
    heap_seed: int | None = None
    """From which the padding of the heap was drawn, and the sizes of the variables that pad the environment;
    None: there is none. Of a command that is not ours only the environment is padded."""


UNPADDED = ProcessLayout()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One fresh A worker and one fresh B worker, and perhaps a second A; warm-up slots are still in."""

    number: int
    schedule: Schedule
    a: tuple[Slot, ...]
    b: tuple[Slot, ...]
    again: tuple[Slot, ...] = ()
    """A second worker of side A in the same lockstep: the A/A check."""
    order: str = ""
    """Who had each turn: a, b, or c for the second A."""
    cpu: int | None = None
    """The CPU all were pinned to; None: not pinned."""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    """What this pair cost in all, process start included."""
    steal_s: float = 0.0
    """CPU time the host took from this machine meanwhile."""
    pressure_s: float = 0.0
    """Time in which some process of the machine waited for a CPU."""
    others: float = 0.0
    """Share of the machine's CPU time that other programs used meanwhile; 0 where the kernel does not say."""
    confirms: bool = False
    """Measured to confirm an earlier finding."""
    layouts: Mapping[str, tuple[ProcessLayout, ...]] = field(default_factory=dict)
    """Of the processes of a, b and c, in their order; empty in files of earlier versions."""
    paths: PathsAlike | None = None
    """None in files of earlier versions."""

    def to_mapping(self) -> dict[str, Any]:
        """Plain data; a slot is a row of SLOT_FIELDS."""
        return {
            "number": self.number,
            "loops": self.schedule.loops,
            "warmup": self.schedule.warmup,
            "kept": self.schedule.kept,
            "lead": self.schedule.lead,
            "order": self.order,
            "cpu": self.cpu,
            "wall_s": self.wall_s,
            "cpu_s": self.cpu_s,
            "steal_s": self.steal_s,
            "pressure_s": self.pressure_s,
            "others": self.others,
            "confirms": self.confirms,
            "paths": self.paths,
            "layouts": layouts_to_mapping(self.layouts),
            "a": [slot.row() for slot in self.a],
            "b": [slot.row() for slot in self.b],
            "again": [slot.row() for slot in self.again],
        }

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Pair:
        """The inverse of `to_mapping`."""
        known = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        asked = {name: data[name] for name in Schedule.__dataclass_fields__ if name in data}
        sides = {side: slots_from(data.get(side, ())) for side in ("a", "b", "again")}
        layouts = {
            role: tuple(ProcessLayout(**layout) for layout in of_role)
            for role, of_role in data.get("layouts", {}).items()
        }
        return cls(**{**known, **sides, "schedule": Schedule(**asked), "layouts": layouts})


def layouts_to_mapping(layouts: Mapping[str, Sequence[ProcessLayout]]) -> dict[str, list[dict[str, Any]]]:
    """Plain data."""
    return {role: [layout._asdict() for layout in of_role] for role, of_role in layouts.items()}


def slots_from(rows: Sequence[Sequence[int]]) -> tuple[Slot, ...]:
    """Slots from their rows."""
    return tuple(Slot(*row) for row in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What one worker of each side showed before the pairs: that it runs, and how long a call takes."""

    schedule: Schedule
    call_wall_s: float
    call_cpu_s: float
    at_once: float = 0.0
    """For which share of its CPU time more than one of its threads and processes ran or wanted to."""
    notes: tuple[str, ...] = ()
    """What the experiment has to say about itself."""
