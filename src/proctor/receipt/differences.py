"""What differs, and where: which file, which trial, which field, and both values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from proctor.model.plan import PlannedTrial

KEPT = 1000
"""Maximum number of differences that are listed; the rest is only counted."""
_ABSENT = object()
_CLOSE = 1e-9
_CLOSE_ABOVE = 1e-7
"""Two machines may round the last digits of a logarithm differently; smaller differences are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference from what is expected."""

    file: str
    what: str
    """A sentence without the file and the trial."""
    trial: PlannedTrial | None = None
    attempt: int | None = None
    field: str = ""
    recorded: Any = None
    expected: Any = None

    @property
    def text(self) -> str:
        """One line for a person."""
        who = f" trial {self.trial.key[:12]}… ({self.trial.label})" if self.trial else ""
        again = f", attempt {self.attempt}" if self.attempt and self.attempt > 1 else ""
        return f"{self.file}:{who}{again}{',' if again else ''} {self.what}"

    def to_mapping(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "file": self.file,
            "trial": self.trial.key if self.trial else None,
            "index": self.trial.index if self.trial else None,
            "label": self.trial.label if self.trial else None,
            "attempt": self.attempt,
            "field": self.field,
            "recorded": shown(self.recorded),
            "expected": shown(self.expected),
            "what": self.what,
        }


@dataclass(slots=True)
class Findings:
    """What a check found, the first thousand whole."""

    differences: list[Difference] = field(default_factory=list)
    total: int = 0
    notes: dict[str, None] = field(default_factory=dict)
    """What could not be checked, and why; each once."""

    def add(self, difference: Difference) -> None:
        """One more."""
        self.total += 1
        if len(self.differences) < KEPT:
            self.differences.append(difference)

    def note(self, text: str) -> None:
        """A note for the reader that is not a difference."""
        self.notes[text] = None

    def value(
        self,
        file: str,
        name: str,
        recorded: Any,
        expected: Any,
        source: str,
        *,
        trial: PlannedTrial | None = None,
        attempt: int | None = None,
    ) -> None:
        """Compare a value with what it should be, and add the difference when there is one."""
        if not same(recorded, expected):
            what = f"{name}: recorded {said(recorded)}, {source} {said(expected)}"
            self.add(
                Difference(
                    file=file,
                    what=what,
                    trial=trial,
                    attempt=attempt,
                    field=name,
                    recorded=recorded,
                    expected=expected,
                )
            )


def same(one: Any, other: Any) -> bool:
    """Equal, small floats to the ninth digit. 1 and 1.0 are the same number, true is none."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other or _close(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def _close(one: float, other: float) -> bool:
    if isinstance(one, int) and isinstance(other, int):
        return False
    try:
        size = max(abs(float(one)), abs(float(other)))
    except OverflowError:
        return False
    # A moment in seconds since 1970 is a large number: what is close must not grow with it.
    return abs(one - other) <= max(8 * math.ulp(size), min(_CLOSE * size, _CLOSE_ABOVE))


def compare(
    recorded: Any, expected: Any, path: str = "", owner: str = ""
) -> Iterator[tuple[str, Any, Any, str]]:
    """Where two documents differ exactly: path, what is there, what should be, and the key it stands under.

    The key is that of the innermost object around the place which has one: a trial's.
    """
    if isinstance(recorded, dict) and isinstance(expected, dict):
        owner = str(expected.get("key") or owner)
        for name in {**recorded, **expected}:
            inner = f"{path}.{name}" if path else str(name)
            yield from compare(recorded.get(name, _ABSENT), expected.get(name, _ABSENT), inner, owner)
    elif isinstance(recorded, list) and isinstance(expected, list):
        for at in range(max(len(recorded), len(expected))):
            one = recorded[at] if at < len(recorded) else _ABSENT
            other = expected[at] if at < len(expected) else _ABSENT
            yield from compare(one, other, f"{path}[{at}]", owner)
    elif type(recorded) is not type(expected) or recorded != expected:
        yield path, recorded, expected, owner


def absent(value: Any) -> bool:
    """Whether `compare` found nothing there."""
    return value is _ABSENT


def shown(value: Any) -> Any:
    """A value for JSON output; large ones are cut."""
    if value is _ABSENT:
        return None
    if isinstance(value, str | dict | list | tuple):
        return value if len(str(value)) <= 2000 else said(value, 2000)
    return value


def said(value: Any, limit: int = 80) -> str:
    """A value inside a sentence."""
    if value is _ABSENT:
        return "nothing"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value) if isinstance(value, str | float | int) else str(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
