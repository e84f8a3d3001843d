"""What measured code returned or raised, as plain data of a bounded size.

Nothing that is refused is ever turned into text, and neither a message nor a traceback may be of any size.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


MAX_VALUE_BYTES = 1 << 20
MAX_TOTAL_BYTES = 32 << 20
_MAX_DEPTH = 32
_MAX_INT_BITS = 1024


class RefusedError(Exception):
    """What was returned cannot be kept; the message says what and why."""


class Checker:
    """Turns returned values into plain JSON values; holds the budget of one trial."""

    def __init__(self, *, value_bytes: int = MAX_VALUE_BYTES, total_bytes: int = MAX_TOTAL_BYTES) -> None:
        self._value_bytes = value_bytes
        self._left_in_total = total_bytes
        self._left = 0
        self.not_finite: dict[str, int] = {}
        """How often each value was NaN or infinite. JSON has no such number: it is kept as null."""

    def plain(self, returned: Any) -> dict[str, Any]:
        """The returned mapping as plain data. None counts as an empty one."""
        if returned is None:
            return {}
        if not isinstance(returned, Mapping):
            raise RefusedError(f"execute_once must return a dict of metrics; it returned {_kind(returned)}")
        self._left = self._value_bytes
        plain: dict[str, Any] = self._mapping(returned, "", 0)
        self._left_in_total -= self._value_bytes - self._left
        if self._left_in_total < 0:
            raise RefusedError(
                "the values of all iterations together are over the limit; write large data to "
                "context.run_dir instead"
            )
        return plain

    def _mapping(self, value: Mapping[Any, Any], name: str, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in value.items():
            if not isinstance(key, str | int) or isinstance(key, bool):
                raise RefusedError(f"a key of {name or 'the result'} is {_kind(key)}; keys must be text")
            text = self._text(key) if isinstance(key, str) else str(self._number(key, name))
            found[text] = self._value(item, f"{name}.{text}" if name else text, depth + 1)
        return found

    def _value(self, value: Any, name: str, depth: int) -> Any:
        self._spend(2, name)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._text(value, name)
        if isinstance(value, int | float):
            return self._number(value, name)
        if depth > _MAX_DEPTH:
            raise RefusedError(f"'{_short(name)}' is nested deeper than {_MAX_DEPTH}, or contains itself")
        if isinstance(value, Mapping):
            return self._mapping(value, name, depth)
        if isinstance(value, list | tuple):
            return [self._value(item, name, depth + 1) for item in value]
        if _is_scalar(value):
            return self._value(value.item(), name, _MAX_DEPTH)
        hint = "; use .tolist()" if hasattr(value, "tolist") else ""
        raise RefusedError(f"'{_short(name)}' is {_kind(value)}, which cannot be stored as JSON{hint}")

    def _text(self, value: str, name: str = "a key") -> str:
        self._spend(len(value), name)
        kept = value.encode("utf-8", "replace")
        self._spend(len(kept) - len(value), name)
        return kept.decode()

    def _number(self, value: float, name: str) -> float | int | None:
        self._spend(16, name)
        if isinstance(value, int):
            if value.bit_length() > _MAX_INT_BITS:
                raise RefusedError(f"'{_short(name)}' is an integer of {value.bit_length()} bits")
            return int(value)
        if not math.isfinite(value):
            self.not_finite[name] = self.not_finite.get(name, 0) + 1
            return None
        return float(value)

    def _spend(self, size: int, name: str) -> None:
        self._left -= size
        if self._left < 0:
            raise RefusedError(
                f"the result is larger than {self._value_bytes} bytes (at '{_short(name)}'); write large "
                "data to context.run_dir instead"
            )


def flat_numbers(row: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of a row; those inside mappings under dotted names, those inside lists not at all."""
    found: dict[str, float] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            found |= flat_numbers(value, f"{prefix}{name}.")
        elif isinstance(value, int | float):
            found[prefix + name] = value
    return found


def _is_scalar(value: Any) -> bool:
    """A number of numpy or the like: one element that knows its plain form."""
    return getattr(value, "shape", None) == () and callable(getattr(value, "item", None))


def _kind(value: Any) -> str:
    return f"of type {type(value).__name__}"


def _short(name: str) -> str:
    return name if len(name) <= 80 else name[:77] + "..."


MAX_MESSAGE = 2_000
MAX_TRACEBACK = 16_000
_MAX_FRAMES = 40
_MAX_CAUSES = 4


def describe_failure(phase: str, error: BaseException) -> dict[str, Any]:
    """Phase, type, message and traceback: the fields of `model.record.Failure`."""
    return {
        "phase": phase,
        "type": type(error).__name__,
        "message": message_of(error),
        "traceback": traceback_of(error),
    }


def message_of(error: BaseException) -> str:
    """What the error says; its own `__str__` may fail, be endless or hold what no file can."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - the error is foreign code, and this is where it is recorded
        text = "(its message could not be created)"
    return _clean(text, MAX_MESSAGE)


def traceback_of(error: BaseException) -> str:
    """The chain of causes, oldest first, as Python prints it; the harness's own frames are left out."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain and len(chain) < _MAX_CAUSES:
        chain.append(current)
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    parts = []
    for each in reversed(chain):
        frames = [
            frame
            for frame in traceback.extract_tb(each.__traceback__, limit=-_MAX_FRAMES)
            if "/proctor/trial/" not in frame.filename
        ]
        lines = "".join(traceback.format_list(frames))
        parts.append(
            f"Traceback (most recent call last):\n{lines}{type(each).__name__}: {message_of(each)}\n"
        )
    return _clean("\nwhich led to:\n\n".join(parts), MAX_TRACEBACK)


def _clean(text: str, limit: int) -> str:
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]}\n… {len(text) - limit} characters left out …\n{text[-half:]}"
    return text.encode("utf-8", "replace").decode()
