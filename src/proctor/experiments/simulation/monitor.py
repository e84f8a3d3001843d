"""What a process takes while a simulation runs: CPU, resident memory, bytes of files and of the network."""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter
from typing import Any


class Monitor:
    """Samples of this process, taken between steps so that none is inside a timed stage."""

    def __init__(self, params: dict[str, Any]) -> None:
        self._params = params
        self._steps: list[int] = []
        self._rss: list[int] = []
        self._next = 0.0

    def start(self) -> None:
        """Remember where the counters stand."""
        self._cpu = sum(os.times()[:2])
        self._disk = _disk_bytes() if self._params["monitor_disk"] else None
        self._network = _network_bytes() if self._params["monitor_network"] else None
        self.sample(0)

    def sample(self, step: int) -> None:
        """Take one, when it is due."""
        if not self._params["monitor_memory"] or perf_counter() < self._next:
            return
        self._next = perf_counter() + self._params["sampling_interval"]
        self._steps.append(step)
        self._rss.append(_resident_bytes())

    def metrics(self) -> dict[str, float]:
        """What was monitored."""
        from proctor.analysis.scaling import slope

        found: dict[str, float] = {}
        if self._params["monitor_cpu"]:
            found["process_cpu_s"] = sum(os.times()[:2]) - self._cpu
        if self._rss:
            found |= {"rss_bytes": self._rss[-1], "samples": len(self._rss)}
            if len(self._rss) > 1:
                found |= slope(self._steps, self._rss).metrics("rss_bytes_per_step")
        if self._disk is not None:
            now = _disk_bytes()
            found |= {f"disk_{key}_bytes": now[key] - self._disk[key] for key in now}
        if self._network is not None:
            found["network_bytes"] = _network_bytes() - self._network
        return found


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _disk_bytes() -> dict[str, int]:
    """What the process asked of files, cached or not."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return {"read": int(lines["rchar"]), "written": int(lines["wchar"])}


def _network_bytes() -> int:
    rows = Path("/proc/self/net/dev").read_text().splitlines()[2:]
    columns = [row.partition(":")[2].split() for row in rows]
    return sum(int(each[0]) + int(each[8]) for each in columns)
