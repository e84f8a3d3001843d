"""CPU, memory and I/O of the measured process and its children over time, read from outside it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from proctor.instruments.base import Sampler

MAX_SAMPLES = 20_000
FAMILY_EVERY_S = 1.0


class Psutil(Sampler):
    """A resource series. Its artifact is `series.json`; its summary joins the ledger."""

    name = "psutil"
    defaults: ClassVar[Mapping[str, Any]] = {
        "interval_ms": 100,
        "children": True,
        "max_samples": MAX_SAMPLES,
    }

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._rows: list[dict[str, float]] = []
        self._started = time.monotonic()
        self._last: tuple[float, float] | None = None
        self._sampling_cpu_s = 0.0
        self._dropped = 0
        self._family: list[Any] = []
        self._family_at = float("-inf")

    def sample(self, pid: int) -> None:
        """One row: the process and, by default, all of its descendants."""
        import psutil

        began = time.thread_time()
        now = time.monotonic()
        try:
            self._find_family(pid, now)
        except psutil.Error:
            return
        readings = [reading for each in self._family if (reading := _read(each))]
        if readings and len(self._rows) < self.options["max_samples"]:
            self._rows.append(self._row(now, readings))
        else:
            self._dropped += bool(readings)
        self._sampling_cpu_s += time.thread_time() - began

    def _find_family(self, pid: int, now: float) -> None:
        """Who to look at. Finding children means reading every process there is, so not at every look."""
        import psutil

        if now - self._family_at >= FAMILY_EVERY_S:
            process = psutil.Process(pid)
            self._family = [process, *(process.children(recursive=True) if self.options["children"] else ())]
            self._family_at = now

    def _row(self, now: float, readings: list[dict[str, float]]) -> dict[str, float]:
        total = {name: sum(each[name] for each in readings) for name in readings[0]}
        cpu_percent = 0.0
        if self._last and now > self._last[0]:
            cpu_percent = max(0.0, 100 * (total["cpu_s"] - self._last[1]) / (now - self._last[0]))
        self._last = (now, total["cpu_s"])
        return {
            "at_s": round(now - self._started, 6),
            "cpu_percent": round(cpu_percent, 3),
            "processes": len(readings),
            **total,
        }

    def close(self) -> Mapping[str, Any]:
        """Write the series and give its peaks."""
        if not self._rows:
            return {"samples": 0, "sampling_cpu_s": self._sampling_cpu_s}
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "series.json").write_text(
            json.dumps({"schema": 1, "interval_s": self.interval_s, "samples": self._rows})
        )
        columns = {name: [row[name] for row in self._rows] for name in self._rows[0]}
        return {
            "samples": len(self._rows),
            "dropped_samples": self._dropped,
            "rss_bytes_peak": max(columns["rss_bytes"]),
            "rss_bytes_mean": sum(columns["rss_bytes"]) / len(self._rows),
            "cpu_percent_mean": sum(columns["cpu_percent"][1:]) / max(1, len(self._rows) - 1),
            "read_bytes": max(columns["read_bytes"]),
            "write_bytes": max(columns["write_bytes"]),
            "threads_peak": max(columns["threads"]),
            "sampling_cpu_s": self._sampling_cpu_s,
        }


def _read(process: Any) -> dict[str, float] | None:
    """One process now; None when it has gone or is not ours to read."""
    import psutil

    try:
        with process.oneshot():
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            cpu = process.cpu_times()
            memory = process.memory_info()
            threads = process.num_threads()
            try:
                moved = process.io_counters()
            except psutil.AccessDenied:
                moved = None
    except psutil.Error:
        return None
    return {
        "cpu_s": cpu.user + cpu.system,
        "rss_bytes": memory.rss,
        "threads": threads,
        "read_bytes": moved.read_bytes if moved else 0,
        "write_bytes": moved.write_bytes if moved else 0,
    }
