"""What may differ between two pictures: times, ids, measured numbers, remarks about the machine.

Four levels:

- exact: the same code read the same results. Only what was made while reading is masked.
- loose: the same work was done again. Measured numbers are compared by presence.
- shape: words follow from measured numbers too. JSON is compared by its keys, text by its headings.
- answer: as shape, of a command: and its exit code.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:T|(?:</?[a-z][^>]*>|\s)+)(\d\d:\d\d(?::\d\d(?:\.\d+)?)?)(Z|[+-]\d\d:\d\d| UTC)?"
)
EPOCH = re.compile(r"\b1\d{9}\.\d+\b")
STAMP = re.compile(r"(\d{8}T\d{6})(?:Z|-[0-9a-f]{6})?")
LOOPBACK = re.compile(r"(?:127\.0\.0\.1|localhost)'?(?::|, )\d+")
UNIT = r"(?:ns|µs|us|ms|s|min|h|[KMGT]i?B|B|x|×|/s)"
MEASURED = re.compile(
    rf"(?<![\w.#])[-+−±]?\d[\d,\u202f\u00a0 ]*(?:\.\d+)?(?:e[-+]?\d+)?\s?{UNIT}(?!\w)"
    rf"|(?<![\w.#])[-+−±]?\d+\.\d+(?!\.?\d)(?:e[-+]?\d+)?(?:\s?(?:%|pp)(?!\w))?"
    r"|\d+(?= times as long)|\d+ %(?= of it)"
)
EXTREMES = re.compile(r"(ranges from #) \([^)]*\) (to #) \([^)]*\)")
"""Which points are fastest and slowest."""
NAMES = re.compile(
    r"\b(?:sha256:)?(?:[0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{32})\b"  # digests
    r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
    r"|\b(?:up|co|sc|tok|wh|pt|ws)_[\w-]{8,}"  # ids and secrets of a server
    r"|\bed25519:[\w+/]{40,}="
    r"|[\w.-]+:\d+:\d+:[0-9a-f]{8}:[0-9a-f]{6}\b"  # workers
)
MACHINE = re.compile(
    r"waiting for a CPU|other virtual machines|the load was above|other programs used the CPU"
    r"|too noisy for|^noisy:|spreads by over"
)
"""Remarks that come and go with what else the machine does."""
VOLATILE = re.compile(
    r"(^|_)(pid|port|uptime|age|free|load|etag|latency|boot_id|mark)(_|$)|^(waited_s|oldest_s|from)$"
)
"""Keys of values that depend on when or where they are asked for."""
MEASURED_KEYS = re.compile(
    r"(_s|_ms|_us|_ns|_at|_mb|_hz|_percent)$|bytes|faults|switches|migrations|rss|memory|threads|fds|clock|size"
    r"|^(loops|samples|pid|cpu|port|last_event|system_samples)$"
)
"""Keys of whole numbers that are measured."""
STABLE_DIGESTS = frozenset({"key", "subject_digest", "plan_digest"})
"""Keys of digests that depend on nothing but the spec and the project."""
DIGEST = re.compile(r"[0-9a-f]{64}")
PASSING_KEYS = frozenset({"cpu_pressure", "steal_fraction", "tone", "wanted"})
"""Keys that are there or not, or true or not, by what else the machine did."""
PASSING_FILE = "resources.json"
"""Of an attempt that took long enough for it."""
FILE_TABLE = re.compile(r"\]\(trials/|^More files are under")
"""Lines of a report's list of files, which ends at a number of them; the files are compared themselves."""


class Masks:
    """The masks of one picture."""

    def __init__(self, facts: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> None:
        self.read_at = float(facts["read_at"])
        self.ended_at = float(facts["ended_at"])
        numbers: Counter[str] = Counter()
        self.runs: dict[str, str] = {}
        for run in sorted(runs, key=lambda run: float(run["created_at"])):
            numbers[run["name"]] += 1
            self.runs[run["id"]] = f"<{run['name']} {numbers[run['name']]}>"
        self.run_ids = re.compile("|".join(self.runs) or "(?!)")

    def exact(self, text: str) -> str:
        """Mask what was made while reading."""
        for pattern, parse in ((TIME, _time), (STAMP, _stamp), (EPOCH, _epoch)):
            text = pattern.sub(self._if_now(parse), text)
        return LOOPBACK.sub("<loopback>", text)

    def _if_now(self, parse: Callable[[re.Match[str]], float]) -> Callable[[re.Match[str]], str]:
        return lambda match: "<now>" if self._is_now(parse(match)) else match[0]

    def _is_now(self, at: float) -> bool:
        return self.read_at - 1 <= at <= self.ended_at + 86400

    def exact_value(self, value: Any, key: str = "") -> Any:
        """The same for a JSON value."""
        if isinstance(value, dict):
            return {self.exact(name): self.exact_value(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [self.exact_value(item, key) for item in value]
        if value is not None and VOLATILE.search(key):
            return f"<{type(value).__name__}>"
        if isinstance(value, str):
            return self.exact(value)
        return "<now>" if _is_number(value) and self._is_now(value) else value

    def loose(self, text: str) -> str:
        """Mask times, ids, digests and measured numbers."""
        text = self.run_ids.sub(lambda match: self.runs[match[0]], text)
        text = STAMP.sub("<id>", TIME.sub("<time>", text))
        text = NAMES.sub("<id>", LOOPBACK.sub("<loopback>", text))
        return EXTREMES.sub(r"\1 \2", MEASURED.sub("#", text).replace(" (most #)", ""))

    def loose_value(self, value: Any, key: str = "") -> Any:
        """The same for a JSON value."""
        if isinstance(value, dict):
            return {self.loose(name): self.loose_value(item, name) for name, item in _lasting(value)}
        if isinstance(value, list):
            return [self.loose_value(item, key) for item in value if not is_passing(item)]
        if isinstance(value, str):
            stable = key in STABLE_DIGESTS and DIGEST.fullmatch(value)
            return value if stable else self.loose(value)
        measured = isinstance(value, float) or (_is_number(value) and MEASURED_KEYS.search(key))
        return "#" if measured else value

    def shape(self, value: Any) -> Any:
        """Keys, and of a list all keys of its items."""
        if isinstance(value, dict):
            return {self.loose(name): self.shape(item) for name, item in _lasting(value)}
        if isinstance(value, list):
            merged: Any = "value"
            for item in value:
                merged = _merged(merged, self.shape(item))
            return [merged]
        return "value"


def is_passing(item: Any) -> bool:
    """Whether this line, or this item of a list, is there or not by what else the machine did."""
    if isinstance(item, dict):
        return item.get("name") == PASSING_FILE
    return isinstance(item, str) and bool(MACHINE.search(item) or FILE_TABLE.search(item))


def _lasting(value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, item) for name, item in value.items() if name not in PASSING_KEYS]


def _merged(one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        return {
            name: _merged(one.get(name, "value"), other.get(name, "value"))
            for name in one.keys() | other.keys()
        }
    if isinstance(one, list) and isinstance(other, list):
        return [_merged(one[0], other[0])]
    return other if one == "value" else one


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _time(match: re.Match[str]) -> float:
    zone = "+00:00" if match[3] in {None, "Z", " UTC"} else match[3]
    return _seconds(f"{match[1]}T{match[2]}{zone}")


def _stamp(match: re.Match[str]) -> float:
    return _seconds(f"{match[1]}+00:00")


def _epoch(match: re.Match[str]) -> float:
    return float(match[0])


def _seconds(text: str) -> float:
    try:
        return datetime.fromisoformat(text).astimezone(UTC).timestamp()
    except ValueError:
        return 0.0
