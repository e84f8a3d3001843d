"""What is known of this machine's pace, from one run to the next: a small file in Proctor's home."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from proctor.trial.environment import processor

FILE = "pace.json"
PATIENCE_S = 5.0
"""How long a point waits in total for a calm machine; half of it after a wait without success."""
FORGOTTEN_AFTER_S = 3600.0
"""After this time a known pace is forgotten."""
_RELAXED = 1.02


class KnownPace:
    """The pace of this interpreter on this machine. Where it cannot be written down it lasts for one run."""

    def __init__(self, home: Path | None, *, clock: Callable[[], float] = time.time) -> None:
        self._file = home and home / FILE
        self._clock = clock
        self._subject = f"{platform.python_implementation()} {platform.python_version()} {processor()}"
        self._best_ns, self._seen_at = self._read()
        self._patience_s = PATIENCE_S

    @property
    def best_ns(self) -> int:
        """How long the loop takes at the best; 0 when that is not known."""
        return self._best_ns

    def to_mapping(self) -> dict[str, Any]:
        """What a point must know."""
        return {"best_ns": self._best_ns, "patience_s": self._patience_s}

    def learn(self, found: Mapping[str, Any]) -> None:
        """A point has looked: the best pace it saw, and whether it found the machine calm."""
        now, quickest_ns = self._clock(), found["quickest_ns"] or found["best_ns"]
        if found["short"]:
            self._patience_s = PATIENCE_S if found["calm"] else self._patience_s / 2
        if found["calm"] or not self._best_ns:
            known_ns = self._best_ns * _RELAXED if self._best_ns else quickest_ns
            self._best_ns, self._seen_at = round(min(quickest_ns, known_ns)), now
        elif now - self._seen_at > FORGOTTEN_AFTER_S:
            self._best_ns, self._seen_at = quickest_ns, now
        else:
            return
        self._write()

    def _read(self) -> tuple[int, float]:
        with suppress(OSError, ValueError, KeyError, TypeError):
            if self._file is not None:
                found = json.loads(self._file.read_bytes())
                if found["subject"] == self._subject:
                    return int(found["best_ns"]), float(found["seen_at"])
        return 0, 0.0

    def _write(self) -> None:
        if self._file is not None:
            document = {"subject": self._subject, "best_ns": self._best_ns, "seen_at": self._seen_at}
            with suppress(OSError):
                self._file.parent.mkdir(parents=True, exist_ok=True)
                writing = self._file.with_name(f"{self._file.name}.{os.getpid()}")
                writing.write_text(json.dumps(document))
                writing.replace(self._file)
