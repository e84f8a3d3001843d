"""How fast the machine was while a benchmark ran: a loop that is always the same, timed beside it.

A processor that strangers use too runs the same code at two speeds, so a figure in CPU time is about them as
well. The loop runs in a process of its own, whose CPU is in nobody's account before it has ended.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from statistics import median
from types import TracebackType
from typing import Self

from proctor.trial.point.pace import gauge_ns

EVERY_S = 0.02
FEW = 10


class MachinePace:
    """Around a benchmark; afterwards `text` says how the machine fared."""

    text = ""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        said, _ = self._process.communicate()
        if found := json.loads(said):
            usual, best = found
            self.text = (
                f"the machine ran {usual / best:.2f} times slower than at its best in this time (median)"
            )


def sample() -> list[float]:
    """Look until the other side hangs up; the median and the tenth best."""
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    found = []
    while not over.wait(EVERY_S):
        found.append(gauge_ns())
    return [median(found), sorted(found)[FEW]] if len(found) > FEW else []


if __name__ == "__main__":
    print(json.dumps(sample()))
