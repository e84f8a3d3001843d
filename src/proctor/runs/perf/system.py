"""CPU, memory and I/O of the machine and of the harness over time, read from /proc by the parent process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from proctor.processes import read_process

INTERVAL_S = 0.05
MAX_SAMPLES = 800
"""A longer run is sampled less often: every second sample goes and the interval doubles."""
_SECTOR_BYTES = 512
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class SystemSampler:
    """Takes a sample when it is due. `pid` is the process that runs the episodes."""

    def __init__(self, *, proc: Path = Path("/proc"), clock: Callable[[], float] = time.monotonic) -> None:
        self.interval_s = INTERVAL_S
        self.samples: list[dict[str, Any]] = []
        self.pid: int | None = None
        self._proc = proc
        self._clock = clock
        self._began = clock()
        self._due = self._began
        self._cpu = self._cpu_s()
        self._disk = self._disk_bytes()
        self._harness: tuple[int, float] | None = None
        self._last = self._began

    def wait_s(self) -> float:
        """How long until the next sample."""
        return max(0.0, self._due - self._clock())

    def tick(self) -> None:
        """Take a sample if one is due."""
        if self._clock() >= self._due:
            self.sample()

    def sample(self) -> None:
        """One row, whether due or not."""
        now = self._clock()
        busy, total = self._cpu_s()
        span = total - self._cpu[1]
        read_bytes, write_bytes = self._disk_bytes()
        memory = self._memory()
        self.samples.append(
            {
                "at_s": round(now - self._began, 4),
                "cpu_percent": round(100 * (busy - self._cpu[0]) / span, 2) if span > 0 else 0.0,
                "memory_used_bytes": memory.get("MemTotal", 0) - memory.get("MemAvailable", 0),
                "read_bytes": max(0, read_bytes - self._disk[0]),
                "write_bytes": max(0, write_bytes - self._disk[1]),
                **self._of_harness(now),
            }
        )
        self._cpu = (busy, total)
        self._last = now
        self._due = now + self.interval_s
        if len(self.samples) >= MAX_SAMPLES:
            self.samples = [
                _joined(*pair) for pair in zip(self.samples[::2], self.samples[1::2], strict=False)
            ]
            self.interval_s *= 2

    def to_mapping(self) -> dict[str, Any]:
        """The series as the artifact has it. Bytes are since the start, percent since the sample before."""
        return {"interval_s": self.interval_s, "cpus": os.cpu_count() or 1, "samples": self.samples}

    def _of_harness(self, now: float) -> dict[str, float]:
        process = read_process(self.pid) if self.pid else None
        if process is None:
            return {"harness_cpu_percent": 0.0, "harness_rss_bytes": 0}
        percent = 0.0
        if self._harness and self._harness[0] == process.pid and now > self._last:
            percent = 100 * max(0.0, process.cpu_s - self._harness[1]) / (now - self._last)
        self._harness = (process.pid, process.cpu_s)
        return {"harness_cpu_percent": round(percent, 2), "harness_rss_bytes": process.resident_bytes}

    def _cpu_s(self) -> tuple[float, float]:
        """Busy and whole CPU seconds of all cores since boot."""
        with suppress(OSError, ValueError):
            line = (self._proc / "stat").read_text().split("\n", 1)[0].split()[1:9]
            ticks = [int(each) for each in line]
            idle = ticks[3] + ticks[4]
            return (sum(ticks) - idle) / _TICKS_PER_S, sum(ticks) / _TICKS_PER_S
        return 0.0, 0.0

    def _memory(self) -> dict[str, int]:
        with suppress(OSError, ValueError):
            lines = (line.split() for line in (self._proc / "meminfo").read_text().splitlines()[:5])
            return {parts[0].rstrip(":"): int(parts[1]) * 1024 for parts in lines}
        return {}

    def _disk_bytes(self) -> tuple[int, int]:
        """Read and written by all whole disks; partitions and stacked devices would count twice."""
        read = written = 0
        with suppress(OSError, ValueError, IndexError):
            for line in (self._proc / "diskstats").read_text().splitlines():
                fields = line.split()
                if _is_disk(fields[2]):
                    read += int(fields[5]) * _SECTOR_BYTES
                    written += int(fields[9]) * _SECTOR_BYTES
        return read, written


def _joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Two neighbours as one: levels and sums of the later, shares of both."""
    shares = ("cpu_percent", "harness_cpu_percent")
    return {**second, **{name: round((first[name] + second[name]) / 2, 2) for name in shares}}


def _is_disk(name: str) -> bool:
    if name.startswith(("loop", "ram", "dm-", "md", "zram", "sr")):
        return False
    if name.startswith(("nvme", "mmcblk")):
        return "p" not in name.removeprefix("mmcblk").removeprefix("nvme")
    return not name[-1].isdigit()
