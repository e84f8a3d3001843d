"""Who reached which limit: the task its own, which is the agent's doing, or the host what it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_HOST_LACKED = {
    "host_oom": (
        "the host ran out of memory and killed a process of this attempt, which was below its own limit and "
        "used less than half of what was free when it began"
    ),
    "host_full": (
        "the disk of the host is nearly full; this attempt was stopped, although it was below its own limit "
        "and wrote less than half of what was written since it began"
    ),
}


def own_limits(ledger: Mapping[str, Any]) -> list[str]:
    """What was ended at the task's own limits: part of what the agent did, and not to be seen in its logs."""
    found = []
    if (kills := ledger.get("oom_kills")) and not ledger.get("host_oom"):
        some = "a process was" if kills == 1 else f"{kills} processes were"
        found.append(f"memory: {some} killed at the task's own limit")
    if ledger.get("host_oom") and took_most_memory(ledger):
        used, free = ledger["peak_memory_bytes"] >> 20, ledger["memory_free_bytes"] >> 20
        found.append(
            f"memory: the host ran out and killed a process of this attempt, which itself had used {used} MB "
            f"of the {free} MB that were free when it began"
        )
    if (reason := ledger.get("storage_exceeded")) and not ledger.get("host_full"):
        found.append(f"storage: {reason}; everything that ran was ended")
    if paused_s := ledger.get("output_paused_s"):
        found.append(f"output: so much was written that its writers had to wait for {paused_s:.1f} s")
    return found


def host_lacked(ledger: Mapping[str, Any]) -> str:
    """What the host had too little of; empty when it had enough, or this attempt itself took most of it."""
    if ledger.get("host_oom") and not took_most_memory(ledger):
        return _HOST_LACKED["host_oom"]
    return _HOST_LACKED["host_full"] if ledger.get("host_full") else ""


def took_most_memory(ledger: Mapping[str, Any]) -> bool:
    """Whether an attempt used more memory than everything else that began to use some meanwhile."""
    used, free = ledger.get("peak_memory_bytes"), ledger.get("memory_free_bytes")
    return bool(used and free and used * 2 > free)
