"""Canonical JSON and digests: the same value gives the same bytes on any machine."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical_json(value: Any) -> str:
    """Sorted keys, no spaces, no NaN. Floats keep their shortest form."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: Any) -> str:
    """The sha256 of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def derive_seed(seed: int, *parts: object) -> int:
    """A 63-bit seed for one purpose, from the run's seed and what the purpose is called."""
    return int(digest([seed, *map(str, parts)])[:16], 16) >> 1
