"""Answer an agent from a tape: requests are matched by what they say, not by when they come.

Two runs of one agent never send the same bytes. What differs by nature (ids, dates, times, process numbers)
is taken out of both sides by the rules below before they are compared; what still differs is a divergence.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from proctor.bounded_diff import Effort, unified_diff
from proctor.gateway.apis import Api
from proctor.gateway.tape import Entry, Tape

DROPPED = frozenset({
    "metadata", "client_metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "user",
    "model",
})  # fmt: skip
"""Fields of a request that say who asks and how it is cached; the model is compared by itself."""
NUMBERED = frozenset({"id", "call_id", "tool_call_id", "tool_use_id", "item_id", "previous_response_id"})
"""Fields with ids: each is replaced by the number of its first appearance."""
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_DAY = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? +)?"
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?: ?[AP]M)?"
_ZONE = r"(?: ?(?:Z|UTC|GMT|[+-]\d{2}:?\d{2}))?"
MASKS = (
    ("uuid", r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"),
    ("date", rf"\b\d{{4}}-\d{{2}}-\d{{2}}(?:[T ]{_CLOCK}{_ZONE})?"),
    ("date", rf"\b{_DAY}{_MONTH} +\d{{1,2}}(?:,? +{_CLOCK}{_ZONE})?,? +\d{{4}}\b"),
    ("date", rf"\b{_DAY}\d{{1,2}} +{_MONTH} +\d{{4}}(?:,? +{_CLOCK}{_ZONE})?"),
    ("date", r"\b\d{1,2}/\d{1,2}/\d{4}\b"),
    ("time", rf"\b\d{{1,2}}:\d{{2}}:\d{{2}}(?:[.,]\d+)?\b{_ZONE}"),
    ("duration", r"\b\d+(?:\.\d+)? ?(?:µs|us|ms|s|sec|secs|seconds?)\b"),
    ("duration", r'(?<="duration_ms":)[ ]?\d+|(?<="duration_seconds":)[ ]?\d+(?:\.\d+)?'),
    ("id", r"(?i)\b(?:chunk|session|request) id: ?[\w-]+"),
    ("pid", r"(?i)\b(?:pid|process id|process group)s?\b[:= ]*\d+"),
)
"""What is masked in every text: its name, and the pattern."""
_MASK = re.compile(
    "|".join(f"(?P<m{number}>{pattern.replace('(?i)', '')})" for number, (_, pattern) in enumerate(MASKS)),
    re.IGNORECASE,
)
_LONGEST_DIFFERENCE = 40
_CANDIDATES = 64
_MOST_STEPS = 200_000
"""Of the comparison that is shown: the gateway serves all other agents meanwhile."""


class Divergence(NamedTuple):
    """The first request that the tape does not have."""

    step: int
    """The number, on the tape, of the request that was expected instead."""
    where: str
    """Which field differs."""
    difference: str
    """How, readable."""

    @property
    def message(self) -> str:
        """A sentence, and the difference below it."""
        place = f": {self.where}" if self.where else ""
        return f"replay: step {self.step} differs from the tape{place}\n{self.difference}".rstrip()


class DivergedError(Exception):
    """The agent asked something that is not on the tape."""

    def __init__(self, divergence: Divergence) -> None:
        super().__init__(divergence.message)
        self.divergence = divergence


class Replay:
    """Answers from a tape, each once. It has no way to a provider."""

    def __init__(self, tape: Tape, *, recorded_speed: bool = False) -> None:
        self.tape = tape
        self.recorded_speed = recorded_speed
        self.divergence: Divergence | None = None
        self._left: dict[int, tuple[Entry, Any]] = {}
        self._queues: dict[bytes, deque[int]] = defaultdict(deque)
        for entry in tape.entries:
            said = normalised(entry.api, _values(entry.request))
            self._left[entry.n] = entry, said
            self._queues[_fingerprint(entry.api, entry.action, entry.model, said)].append(entry.n)

    @property
    def left(self) -> int:
        """How many requests of the tape have not come yet."""
        return len(self._left)

    def answer(self, api: Api, action: str, model: str, request: str) -> Entry:
        """The recorded answer to a request; DivergedError when there is none, or none any more."""
        said = normalised(api, _values(request))
        queue = self._queues.get(_fingerprint(api, action, model, said))
        if queue:
            return self._left.pop(queue.popleft())[0]
        found = self._difference(api, action, model, said)
        self.divergence = self.divergence or found
        raise DivergedError(found)

    def _difference(self, api: Api, action: str, model: str, said: Any) -> Divergence:
        near = [
            (entry, theirs)
            for entry, theirs in list(self._left.values())[:_CANDIDATES]
            if entry.api is api and entry.action == action
        ]
        count = len(self.tape.entries)
        if self.tape.left_out:
            full = (
                f"the tape was full after {count} requests, and {self.tape.left_out} that came later are not "
                "on it: this attempt cannot be replayed to its end"
            )
            return Divergence(count + 1, "", full)
        if not near:
            return Divergence(
                count + 1, "", f"the tape has {count} requests, and no other that this one could be"
            )
        text = _canonical(said)
        entry, theirs = max(near, key=lambda each: (_common(_canonical(each[1]), text), -each[0].n))
        if entry.model != model:
            return Divergence(entry.n, "model", f"-{entry.model}\n+{model}")
        where, before, after = next(_differences(theirs, said), ("", "", ""))
        return Divergence(entry.n, where, _shown(before, after))


def normalised(api: Api, values: Any) -> Any:
    """A request without what differs between two runs of the same agent."""
    if not isinstance(values, Mapping):
        return values
    numbers: dict[str, str] = {}
    kept = {name: value for name, value in values.items() if name not in DROPPED}
    if api is Api.RESPONSES and isinstance(kept.get("input"), list):
        kept["input"] = [
            {name: value for name, value in item.items() if name != "id"}
            if isinstance(item, Mapping)
            else item
            for item in kept["input"]
        ]
    return _plain(kept, numbers)


def _plain(value: Any, numbers: dict[str, str]) -> Any:
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, list):
        return [_plain(each, numbers) for each in value]
    if isinstance(value, Mapping):
        return {
            name: numbers.setdefault(each, f"<id {len(numbers) + 1}>")
            if name in NUMBERED and isinstance(each, str)
            else _plain(each, numbers)
            for name, each in value.items()
        }
    return value


def masked(text: str) -> str:
    """A text with dates, times, durations and numbers of processes replaced by what they are."""
    return _MASK.sub(lambda found: f"<{MASKS[int((found.lastgroup or 'm0')[1:])][0]}>", text)


def _values(request: str) -> Any:
    try:
        return json.loads(request)
    except ValueError:
        return request


def _canonical(said: Any) -> str:
    return json.dumps(said, sort_keys=True, ensure_ascii=False)


def _fingerprint(api: Api, action: str, model: str, said: Any) -> bytes:
    return hashlib.sha256(f"{api}\n{action}\n{model}\n{_canonical(said)}".encode(errors="replace")).digest()


def _common(one: str, other: str) -> int:
    """How many characters two texts share at their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


def _differences(before: Any, after: Any, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every place where two requests differ, in order: path, on the tape, now."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in dict.fromkeys((*before, *after)):
            place = f"{where}.{name}" if where else str(name)
            yield from _differences(before.get(name), after.get(name), place)
    elif isinstance(before, list) and isinstance(after, list):
        for number, (one, other) in enumerate(zip(before, after, strict=False)):
            yield from _differences(one, other, f"{where}[{number}]")
        if len(before) != len(after):
            least = min(len(before), len(after))
            yield f"{where}[{least}]", before[least:], after[least:]
    elif before != after:
        yield where, before, after


def _shown(before: Any, after: Any) -> str:
    lines = list(
        unified_diff(
            _text(before), _text(after), ("tape", "now"), effort=Effort(_MOST_STEPS), context=2, end=""
        )
    )
    more = len(lines) - _LONGEST_DIFFERENCE
    return "\n".join([*lines[:_LONGEST_DIFFERENCE], *([f"… {more} more lines"] if more > 0 else [])])


def _text(value: Any) -> Sequence[str]:
    if value is None:
        return []
    return (value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)).splitlines()
