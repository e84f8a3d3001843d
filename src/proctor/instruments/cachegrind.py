"""Exact instruction counts under valgrind: a second opinion that no noise moves, never the only one."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from proctor.errors import UsageError
from proctor.instruments.base import Wrapper

_SUMMARY = re.compile(r"^summary:\s*(\d+)", re.MULTILINE)


class Cachegrind(Wrapper):
    """Instructions per call: two runs with different numbers of calls, and the difference between them."""

    name = "cachegrind"
    slowdown = 100.0
    defaults: ClassVar[Mapping[str, Any]] = {"calls": 3}

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if not shutil.which("valgrind"):
            raise UsageError("the instrument 'cachegrind' needs the program valgrind, which is not on PATH")

    def runs(self) -> Sequence[int]:
        """One call, then one plus as many as asked for."""
        return (1, 1 + int(self.options["calls"]))

    def wrap(self, command: Sequence[str], run: int) -> list[str]:
        """Under valgrind, at fixed addresses where the machine allows it."""
        fixed = ["setarch", "-R"] if shutil.which("setarch") else []
        return [
            *fixed,
            "valgrind",
            "--quiet",
            "--tool=cachegrind",
            "--cache-sim=no",
            "--vgdb=no",
            f"--cachegrind-out-file={self._file(run)}",
            *command,
        ]

    def close(self) -> Mapping[str, Any]:
        """The difference of the two counts, per call."""
        few, many = self.runs()
        counts = [_instructions(self._file(few)), _instructions(self._file(many))]
        if None in counts:
            return {"error": "valgrind wrote no counts"}
        total = [count or 0 for count in counts]
        return {"instructions_per_call": (total[1] - total[0]) / (many - few), "instructions": total}

    def _file(self, run: int) -> Path:
        return self.folder / f"cachegrind-{run}.out"


def _instructions(file: Path) -> int | None:
    if not file.exists():
        return None
    found = _SUMMARY.search(file.read_text(errors="replace"))
    return int(found[1]) if found else None
