"""What may differ between two pictures: times, ids, temporary names, measured numbers, facts about the machine.

Three levels, by the folder that an artifact is in:

- exact (`static`, `read`): the same code read the same results. Only what was made while reading is masked.
- loose (`executed`, `world`): the same work was done again. Measured numbers are compared by presence and type.
- shape (`measured`): words follow from measured numbers too. JSON is compared by its keys and types, text by its
  exit code and its headings.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

ISO = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d| UTC)?")
COMPACT = re.compile(r"(\d{8}T\d{6})(?:Z|-[0-9a-f]{6})?")
NUMBER = r"[-+−±]?\d[\d,\u202f\u00a0 ]*(?:\.\d+)?(?:e[-+]?\d+)?"
UNIT = r"(?:ns|µs|us|ms|s|min|h|[KMGT]i?B|B|x|×|/s)"
MEASURED = re.compile(rf"(?:(?<![\w.]){NUMBER}\s?{UNIT}(?![\w])|(?<![\w.#])[-+−±]?\d+\.\d+(?:e[-+]?\d+)?(?:\s?(?:{UNIT}|%|pp)(?!\w))?)")
HASH = re.compile(r"\b(?:sha256:)?(?:[0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{32})\b")
PORT = re.compile(r"\b(127\.0\.0\.1|localhost):\d+")
UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")

VOLATILE = re.compile(
    r"(^|_)(pid|port|uptime|age|free|load|seconds_ago|etag|latency|boot_id|hostname)(_|$)|^(waited_s|oldest_s)$"
)
"""Keys of values that depend on when or where they are asked for."""
MEASURED_KEYS = re.compile(
    r"(_s|_ms|_us|_ns|_bytes|_at|_mb|_kb|_gb|_hz|_usec|_pct|_percent)$"
    r"|^(loops|bytes|size|size_bytes|samples|pid|cpu|n_samples|count_s|port|inner_loops|page_faults|switches)$"
    r"|faults|switches|migrations|rss|memory|threads|fds|clock"
)
"""Keys of whole numbers that are measured."""
STABLE_HASHES = frozenset({"key", "subject_digest", "plan_digest"})


class Masks:
    """The masks of one picture."""

    def __init__(self, facts: Mapping[str, Any], runs: list[Mapping[str, Any]]) -> None:
        self.read_at = float(facts["read_at"])
        self.ended_at = float(facts["ended_at"])
        numbers: Counter[str] = Counter()
        self.runs = {}
        for run in sorted(runs, key=lambda run: float(run["created_at"])):
            numbers[run["name"]] += 1
            self.runs[run["id"]] = f"<{run['name']} {numbers[run['name']]}>"
        self.run_ids = re.compile("|".join(self.runs) or "(?!)")

    def exact(self, text: str) -> str:
        """Mask what was made while reading."""
        text = ISO.sub(self._if_now(_iso), COMPACT.sub(self._if_now(_compact), text))
        return PORT.sub(r"\1:<port>", text)

    def _if_now(self, parse: Callable[[re.Match[str]], float | None]) -> Callable[[re.Match[str]], str]:
        def masked(match: re.Match[str]) -> str:
            at = parse(match)
            return "<now>" if at is not None and at >= self.read_at - 61 and self._is_now(at) else match[0]

        return masked

    def _is_now(self, at: float) -> bool:
        return self.read_at - 1 <= at <= self.ended_at + 86400

    def exact_value(self, value: Any, key: str = "") -> Any:
        """The same for a JSON value."""
        if isinstance(value, dict):
            return {self.exact(name): self.exact_value(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [self.exact_value(item, key) for item in value]
        if isinstance(value, str):
            return self.exact(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            if VOLATILE.search(key):
                return f"<{type(value).__name__}>"
            return "<now>" if self._is_now(value) else value
        return value

    def loose(self, text: str) -> str:
        """Mask times, ids, digests and measured numbers; spaces do not count, as widths follow numbers."""
        text = self.run_ids.sub(lambda match: self.runs[match[0]], text)
        text = COMPACT.sub("<id>", ISO.sub("<time>", text))
        text = PORT.sub(r"\1:<port>", UUID.sub("<uuid>", HASH.sub("<hash>", text)))
        return MEASURED.sub("#", text)

    def loose_value(self, value: Any, key: str = "") -> Any:
        """The same for a JSON value."""
        if isinstance(value, dict):
            return {self.loose(name): self.loose_value(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [self.loose_value(item, key) for item in value]
        if isinstance(value, str):
            return value if key in STABLE_HASHES else self.loose(value)
        if isinstance(value, float) or (
            isinstance(value, int) and not isinstance(value, bool) and MEASURED_KEYS.search(key)
        ):
            return "#"
        return value

    def shape(self, value: Any) -> Any:
        """Keys and types; of a list the kinds of items in it."""
        if isinstance(value, dict):
            return {self.loose(name): self.shape(item) for name, item in value.items()}
        if isinstance(value, list):
            items: list[Any] = []
            for item in map(self.shape, value):
                if item not in items:
                    items.append(item)
            return items
        return "#" if isinstance(value, int | float) and not isinstance(value, bool) else f"<{type(value).__name__}>"


def _iso(match: re.Match[str]) -> float | None:
    text = match[0].replace(" UTC", "+00:00").replace("Z", "+00:00").replace(" ", "T", 1)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _compact(match: re.Match[str]) -> float | None:
    try:
        return datetime.strptime(match[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
