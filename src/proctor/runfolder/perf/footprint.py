"""What one run left on disk: only its own files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Footprint:
    """The files below a run's folder."""

    root: Path
    file_count: int
    total_bytes: int
    trials: dict[str, int]
    """Folder of a trial, as `trials/<task>/<n>` → the bytes in it."""

    def to_mapping(self, root: str) -> dict[str, str | int | float]:
        """As the summary has it."""
        average = self.total_bytes / self.file_count if self.file_count else 0.0
        return {
            "root": root,
            "file_count": self.file_count,
            "total_bytes": self.total_bytes,
            "avg_bytes": round(average, 3),
        }


def footprint(root: Path) -> Footprint:
    """Measure a run's folder. Links are not followed."""
    count = total = 0
    trials: dict[str, int] = {}
    for parts, size in _files(root):
        count += 1
        total += size
        if parts[0] == "trials" and len(parts) > 3:
            name = "/".join(parts[:3])
            trials[name] = trials.get(name, 0) + size
    return Footprint(root, count, total, trials)


def _files(root: Path) -> Iterator[tuple[tuple[str, ...], int]]:
    for folder, _, names in os.walk(root):
        inside = Path(folder).relative_to(root).parts
        for name in names:
            path = os.path.join(folder, name)  # noqa: PTH118 - for every file of the run
            if not os.path.islink(path):  # noqa: PTH114 - same
                yield (*inside, name), os.stat(path).st_size  # noqa: PTH116 - same
