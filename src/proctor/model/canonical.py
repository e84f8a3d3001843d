"""Plain values as JSON: canonical for digests, and as records, documents and rows are written."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Signed = Annotated[int, Meta(ge=1 - 2**63, le=2**63 - 1)]
"""What both databases keep as a whole number."""
Number = int | float
"""Written again as it was read: 1 is not 1.0."""


def canonical_json(value: Any) -> str:
    """Sorted keys, no spaces, no NaN. Floats keep their shortest form."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: Any) -> str:
    """The sha256 of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def derive_seed(seed: int, *parts: object) -> int:
    """A 63-bit seed for one purpose, from the run's seed and what the purpose is called."""
    return int(digest([seed, *map(str, parts)])[:16], 16) >> 1


def encode(value: Any, *, escape: bool = True) -> str:
    """Compact JSON that any parser reads: what is not finite becomes null, a lone surrogate is escaped."""
    try:
        text = _COMPACT.encode(value)
    except ValueError:
        value = finite(value)
        text = _COMPACT.encode(value)
    return text if not escape or is_unicode(text) else _ESCAPED.encode(value)


def finite(value: Any) -> Any:
    """The same as plain data; what is not finite becomes None, so that any JSON parser reads it."""
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def is_unicode(text: str) -> bool:
    """Whether text can be written as UTF-8: no half of a surrogate pair is alone in it."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    message = f"{type(value).__name__} is not JSON"
    raise TypeError(message)


# Made once: `json.dumps` with options makes one per call, which costs more than a short document.
_COMPACT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
_ESCAPED = json.JSONEncoder(separators=(",", ":"), default=_plain)
