"""What a worker can execute on this machine, and how many trials at a time that may be."""

from __future__ import annotations

import os
import platform
import socket
from dataclasses import dataclass
from pathlib import Path

from proctor.model.trial import Offers
from proctor.runs.versions import own_version
from proctor.sandbox.choose import AUTO, BACKENDS
from proctor.settings import Settings
from proctor.store.fleet import WorkerInfo

_MB = 1 << 20
_FULL = 0.9
"""Of processors or memory: above that no more trials are begun at a time."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a worker offers, and where it is."""

    offers: Offers
    host: str

    @classmethod
    def here(cls, settings: Settings, labels: tuple[str, ...]) -> Capacity:
        """Of this machine: which sandboxes work, its memory and processors; its architecture is a label."""
        backends = tuple(each for each in AUTO if not BACKENDS[each].obstacle())
        if settings.sandbox not in {"auto", *backends}:
            backends += (settings.sandbox,)
        offers = Offers(
            backends=backends,
            memory_mb=_memory_bytes("MemTotal") // _MB,
            cpus=float(len(os.sched_getaffinity(0))),
            labels=tuple(dict.fromkeys((f"arch={platform.machine()}", *backends, *labels))),
        )
        return cls(offers, socket.gethostname())

    def described(self, name: str, parallel: int, *, running: int, run: str, draining: bool) -> WorkerInfo:
        """A row of the registry."""
        return WorkerInfo(
            name=name,
            host=self.host,
            version=own_version(),
            parallel=parallel,
            running=running,
            cpus=self.offers.cpus,
            memory_mb=self.offers.memory_mb,
            backends=self.offers.backends,
            labels=self.offers.labels,
            run=run,
            draining=draining,
        )


class Scale:
    """How many trials at a time: more while all places are taken and the machine has room, else fewer."""

    def __init__(self, least: int, most: int) -> None:
        self.least = least
        self.most = most

    def next(self, parallel: int, running: int, busy: float | None = None) -> int:
        """The number for the next while. `busy`: the share of the machine that is used, where known."""
        busy = used_share() if busy is None else busy
        if running >= parallel and busy < _FULL:
            return min(self.most, parallel * 2)
        if busy > _FULL or running < parallel // 2:
            return max(self.least, parallel // 2)
        return parallel


def used_share() -> float:
    """How much of this machine is used: of its processors or its memory, whichever is more."""
    processors = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    memory = 1 - _memory_bytes("MemAvailable") / max(1, _memory_bytes("MemTotal"))
    return max(processors, memory)


def _memory_bytes(name: str) -> int:
    """A line of /proc/meminfo; no more than this process's control group allows."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return min(int(line.split()[1]) * 1024, _group_limit())
    return 0


def _group_limit() -> int:
    try:
        return int(Path("/sys/fs/cgroup/memory.max").read_text())
    except (OSError, ValueError):
        return 1 << 62
