"""What a sandbox uses at one moment, from files of the kernel: no process is asked and nothing is walked."""

from __future__ import annotations

import os
from dataclasses import dataclass

from proctor.disk import opened
from proctor.sandbox.base import Sandbox
from proctor.sandbox.limits import Group

_MOST_BYTES = 16 << 10
_LOOPBACK = b"lo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Memory now; all others since the sandbox began. What is None is not counted here."""

    memory_bytes: int | None = None
    cpu_s: float | None = None
    throttled_s: float | None = None
    oom_kills: int = 0
    disk_bytes: int | None = None
    """As last measured for the storage limit."""
    received_bytes: int | None = None
    sent_bytes: int | None = None


def sample(sandbox: Sandbox) -> Sample | None:
    """What a sandbox uses now; None where its kind does not say, or it has ended."""
    look = getattr(sandbox, "sample", None)
    found: Sample | None = look() if look else None
    return found


def sample_of(group: Group, *, pid: int, disk_bytes: int) -> Sample:
    """What the control groups of a sandbox count, and the network of a process in it."""
    received, sent = traffic(pid) if pid else (None, None)
    return Sample(
        memory_bytes=group.memory_bytes(),
        cpu_s=group.cpu_s(),
        throttled_s=group.throttled_s(),
        oom_kills=group.oom_kills(),
        disk_bytes=disk_bytes or None,
        received_bytes=received,
        sent_bytes=sent,
    )


def traffic(pid: int) -> tuple[int, int] | tuple[None, None]:
    """Bytes that a process's network received and sent, without what stayed inside; None: it has none."""
    try:
        with opened(f"/proc/{pid}/net/dev", os.O_RDONLY) as fd:
            lines = os.read(fd, _MOST_BYTES).splitlines()[2:]
    except OSError:
        return None, None
    received = sent = links = 0
    for line in lines:
        name, colon, rest = line.partition(b":")
        figures = rest.split()
        if colon and name.strip() != _LOOPBACK and len(figures) >= 9:
            received, sent, links = received + int(figures[0]), sent + int(figures[8]), links + 1
    return (received, sent) if links else (None, None)
