"""Which functions the time goes to, by the deterministic profiler of the standard library."""

from __future__ import annotations

import cProfile
import json
import pstats
from collections.abc import Mapping
from types import TracebackType
from typing import Any, ClassVar, Self

from proctor.instruments.base import Instrument


class CProfile(Instrument):
    """A profile over its whole pass: `profile.prof` for tools, `top.json` and `top.txt` for people."""

    name = "cprofile"
    defaults: ClassVar[Mapping[str, Any]] = {"top": 50}
    older: ClassVar[Mapping[str, str]] = {"top_n": "top"}
    slowdown = 6.0

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._profile = cProfile.Profile()

    def __enter__(self) -> Self:
        self._profile.enable()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._profile.disable()

    def close(self) -> Mapping[str, Any]:
        """Write the profile and name the functions that took most."""
        self._profile.create_stats()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._profile.dump_stats(self.folder / "profile.prof")
        top = top_functions(self._profile, int(self.options["top"]))
        (self.folder / "top.json").write_text(json.dumps({"schema": 1, "functions": top}, indent=1))
        (self.folder / "top.txt").write_text(_table(top))
        return {"functions": top[:5]}


def top_functions(profile: cProfile.Profile, count: int) -> list[dict[str, Any]]:
    """The functions with most time of their own; the harness's own frames are left out."""
    rows: list[dict[str, Any]] = []
    stats: Mapping[tuple[str, int, str], tuple[int, int, float, float, Any]] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    for (file, line, function), (primitive, calls, own_s, cumulative_s, _) in stats.items():
        if _is_harness(file, function):
            continue
        rows.append(
            {
                "function": function,
                "file": file,
                "line": line,
                "calls": calls,
                "primitive_calls": primitive,
                "own_s": own_s,
                "cumulative_s": cumulative_s,
            }
        )
    rows.sort(key=lambda row: -row["own_s"])
    return rows[:count]


_HARNESS_CALLS = (
    "perf_counter_ns",
    "process_time_ns",
    "lsprof.Profiler",
)


def _is_harness(file: str, function: str) -> bool:
    if file == "~":
        return any(name in function for name in _HARNESS_CALLS)
    return "proctor/trial/" in file or "proctor/instruments/" in file


def _table(top: list[dict[str, Any]]) -> str:
    lines = [f"{'calls':>10} {'own s':>11} {'cum. s':>11}  function"]
    for row in top:
        place = f" ({row['file']}:{row['line']})" if row["line"] else ""
        lines.append(
            f"{row['calls']:>10} {row['own_s']:>11.6f} {row['cumulative_s']:>11.6f}  {row['function']}{place}"
        )
    return "\n".join(lines) + "\n"
