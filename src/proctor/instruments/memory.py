"""Where memory is allocated: by the standard library's tracer, or by memray, which sees native code too."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Mapping
from types import TracebackType
from typing import Any, ClassVar, Self

from proctor.instruments.base import Instrument
from proctor.processes import OF_PYTHON, host_environment


class Tracemalloc(Instrument):
    """Python allocations by line. Slows code five to twelve times, so it is never near the timer."""

    name = "tracemalloc"
    defaults: ClassVar[Mapping[str, Any]] = {"top": 25, "frames": 1}
    older: ClassVar[Mapping[str, str]] = {"top_n": "top"}
    slowdown = 15.0

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._before = 0
        self._peak = 0
        self._after = 0
        self._snapshot: tracemalloc.Snapshot | None = None

    def __enter__(self) -> Self:
        if not tracemalloc.is_tracing():
            tracemalloc.start(int(self.options["frames"]))
        tracemalloc.reset_peak()
        self._before = tracemalloc.get_traced_memory()[0]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if tracemalloc.is_tracing():
            self._after, self._peak = tracemalloc.get_traced_memory()
            self._snapshot = tracemalloc.take_snapshot()

    def metrics(self) -> Mapping[str, float]:
        """The highest point of the iteration above its start, and what it did not give back."""
        return {"peak_bytes": self._peak - self._before, "kept_bytes": self._after - self._before}

    def close(self) -> Mapping[str, Any]:
        """Write the lines that hold most memory after the last iteration."""
        tracemalloc.stop()
        if self._snapshot is None:
            return {}
        ours = ("*/proctor/trial/*", "*/proctor/instruments/*", tracemalloc.__file__)
        taken = self._snapshot.filter_traces([tracemalloc.Filter(False, pattern) for pattern in ours])
        top = [
            {
                "file": each.traceback[0].filename,
                "line": each.traceback[0].lineno,
                "size_bytes": each.size,
                "blocks": each.count,
            }
            for each in taken.statistics("lineno")[: int(self.options["top"])]
        ]
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "top.json").write_text(json.dumps({"schema": 1, "lines": top}, indent=1))
        return {"lines": top[:5], "tracer_bytes": tracemalloc.get_tracemalloc_memory()}


class Memray(Instrument):
    """Every allocation of the last iteration, native ones too, as a file for memray and a flame graph."""

    name = "memray"
    defaults: ClassVar[Mapping[str, Any]] = {"top": 25, "native": False, "html": True}
    older: ClassVar[Mapping[str, str]] = {"top_n": "top"}
    slowdown = 6.0
    needs = ("memray", "profilers")

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._tracker: Any = None
        self._metrics: dict[str, float] = {}

    def __enter__(self) -> Self:
        import memray

        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "allocations.bin"
        file.unlink(missing_ok=True)
        self._tracker = memray.Tracker(file, native_traces=self.options["native"])
        self._tracker.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import memray

        self._tracker.__exit__(kind, error, trace)
        with memray.FileReader(self.folder / "allocations.bin") as reader:
            found = reader.metadata
            self._metrics = {
                "peak_bytes": found.peak_memory,
                "allocations": found.total_allocations,
            }

    def metrics(self) -> Mapping[str, float]:
        """Peak heap and number of allocations of the iteration."""
        return self._metrics

    def close(self) -> Mapping[str, Any]:
        """Name the largest allocators and draw the flame graph."""
        file = self.folder / "allocations.bin"
        if not file.exists():
            return {}
        top = self._largest()
        (self.folder / "top.json").write_text(json.dumps({"schema": 1, "at_peak": top}, indent=1))
        if self.options["html"]:
            subprocess.run(
                [sys.executable, "-m", "memray", "flamegraph", "--force", "-o", "flamegraph.html", file.name],
                cwd=self.folder,
                check=False,
                capture_output=True,
                env=host_environment(*OF_PYTHON),
            )
        return {"at_peak": top[:5]}

    def _largest(self) -> list[dict[str, Any]]:
        import memray

        with memray.FileReader(self.folder / "allocations.bin") as reader:
            records = sorted(
                reader.get_high_watermark_allocation_records(merge_threads=True),
                key=lambda record: -record.size,
            )
            largest = [
                {
                    "size_bytes": record.size,
                    "allocations": record.n_allocations,
                    "stack": [
                        f"{function} ({file}:{line})"
                        for function, file, line in record.stack_trace(max_stacks=5)
                    ],
                }
                for record in records[: int(self.options["top"])]
            ]
        return list(largest)
