"""What a measured process used, read by itself at both ends of its iterations.

A sampler looks from outside at its own pace, and a point that is over between two looks would have no
figures. Read only when a sampler was asked for, and outside the timer.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def read_end() -> dict[str, float]:
    """One reading; what the kernel does not tell is 0, as in the sampler's own rows."""
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
