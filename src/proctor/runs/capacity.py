"""What a worker can execute on this machine, and how many trials at a time that may be."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from proctor import owner
from proctor.model.trial import Offers
from proctor.runs.versions import own_version
from proctor.sandbox.choose import AUTO, BACKENDS
from proctor.sandbox.limits import group_paths
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
    obstacles: tuple[str, ...] = ()
    """Why sandboxes do not work here that would be chosen before the first that does."""

    @classmethod
    def here(cls, settings: Settings, labels: tuple[str, ...]) -> Capacity:
        """Of this machine: which sandboxes work, its memory and processors; its architecture is a label."""
        obstacles = {each: BACKENDS[each].obstacle() for each in AUTO}
        backends = tuple(each for each in AUTO if not obstacles[each])
        before = AUTO[: AUTO.index(backends[0])] if backends else AUTO
        if settings.sandbox not in {"auto", *backends}:
            backends += (settings.sandbox,)
        memory = Memory.here()
        offers = Offers(
            backends=backends,
            memory_mb=memory.limit_bytes // _MB,
            place=memory.place,
            cpus=float(len(os.sched_getaffinity(0))),
            labels=tuple(dict.fromkeys((f"arch={platform.machine()}", *backends, *labels))),
        )
        return cls(offers, socket.gethostname(), tuple(f"{each}: {obstacles[each]}" for each in before))

    def described(self, name: str, parallel: int, **more: Any) -> WorkerInfo:
        """A row of the registry; `more`: what changes while it works."""
        return WorkerInfo(
            name=name,
            host=self.host,
            place=self.offers.place,
            version=own_version(),
            parallel=parallel,
            cpus=self.offers.cpus,
            memory_mb=self.offers.memory_mb,
            backends=self.offers.backends,
            labels=self.offers.labels,
            **more,
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
    memory = 1 - _meminfo_bytes("MemAvailable") / max(1, _meminfo_bytes("MemTotal"))
    return max(processors, memory)


@dataclass(frozen=True, slots=True)
class Memory:
    """How much memory this process may use, and whose that is."""

    limit_bytes: int
    place: str
    """The same in every process with the same memory: this machine's, or that of a control group."""

    @classmethod
    def here(cls, mounts: Path = Path("/proc/self/mounts"), own: Path = Path("/proc/self/cgroup")) -> Memory:
        """That of the machine, whatever the container; or of the tightest control group, which is its own."""
        machine = owner.boot_id() or socket.gethostname()
        groups = _limits_of_groups(mounts, own)
        limit_bytes, group = min(groups, default=(1 << 62, 0))
        if limit_bytes >= (total_bytes := _meminfo_bytes("MemTotal")):
            limit_bytes, group = total_bytes, 0
        return cls(limit_bytes, sha256(f"{machine} {group}".encode()).hexdigest()[:16])


def _limits_of_groups(mounts: Path, own: Path) -> Iterator[tuple[int, int]]:
    """The limits of the control groups around this process, each with the number that the kernel gave it."""
    try:
        mounted = [line.split() for line in mounts.read_text().splitlines()]
        paths = group_paths(own.read_text())
    except OSError:
        return
    for _, root, kind, options, *_ in mounted:
        if kind == "cgroup2":
            path, file = paths.get("", ""), "memory.max"
        elif kind == "cgroup" and "memory" in options.split(","):
            path, file = paths.get("memory", ""), "memory.limit_in_bytes"
        else:
            continue
        # In a container the path may be one of the host's, of which only the root can be seen.
        inner = Path(root) / path.lstrip("/")
        for group in (inner, *inner.parents):
            if not group.is_relative_to(root):
                break
            with suppress(OSError, ValueError):
                yield int((group / file).read_text()), group.stat().st_ino


def _meminfo_bytes(name: str) -> int:
    """A line of /proc/meminfo."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0
