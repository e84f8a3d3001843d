"""Where the time goes, by sampling the stack: less distorting than counting every call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from proctor.instruments.base import Instrument


class Pyinstrument(Instrument):
    """A call tree over its whole pass: `flame.html` opens from disk, `tree.txt` is the same in text."""

    name = "pyinstrument"
    defaults: ClassVar[Mapping[str, Any]] = {"interval_ms": 1.0}
    slowdown = 8.0
    needs = ("pyinstrument", "profilers")

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._profiler: Any = None

    def open(self, folder: Path) -> None:
        """Make the profiler here, in the process that it watches."""
        import pyinstrument

        super().open(folder)
        self._profiler = pyinstrument.Profiler(
            interval=float(self.options["interval_ms"]) / 1000, async_mode="disabled"
        )

    def __enter__(self) -> Self:
        self._profiler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._profiler.stop()

    def close(self) -> Mapping[str, Any]:
        """Write the tree, as a page and as text. A pass too short for one sample leaves nothing."""
        session = self._profiler.last_session
        if session is None or not session.frame_records:
            return {"samples": 0}
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "flame.html").write_text(self._profiler.output_html())
        (self.folder / "tree.txt").write_text(self._profiler.output_text(unicode=True, show_all=True))
        return {"samples": session.sample_count, "sampled_s": session.duration}
