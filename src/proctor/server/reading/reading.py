"""What the reading routes keep between requests. All of it can be made again from the store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from proctor.agents.atif import Recording
from proctor.server.reading.kept import Kept
from proctor.server.reading.run_rows import RunRows

_BYTES = 64 << 20


@dataclass(slots=True)
class Reading:
    """Kept by the server's state: `shared.reading`."""

    rows: RunRows = field(default_factory=RunRows)
    answers: Kept[bytes] = field(default_factory=lambda: Kept(_BYTES))
    """Large answers, as they are sent."""
    due: Kept[float] = field(default_factory=lambda: Kept(10_000))
    """When an answer about runs that go on is to be made again."""
    orders: Kept[list[int]] = field(default_factory=lambda: Kept(2_000_000))
    """The trials that a filter and an order give, by index."""
    suspects: Kept[dict[int, tuple[int, bool]]] = field(default_factory=lambda: Kept(2_000_000))
    """Run → index → the attempt that was looked at, and whether it is suspect."""
    lists: Kept[list[dict[str, Any]]] = field(default_factory=lambda: Kept(1_000))
    """Short lists that take long to make."""
    recordings: Kept[Recording] = field(default_factory=lambda: Kept(_BYTES))
    """Transcripts that were read, by digest; each weighs what its file does."""
