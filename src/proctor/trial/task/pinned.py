"""What else decided a result, for its record: the image of the root, and the limits asked for."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from proctor.sandbox.base import Limits, Root


def image_of(root: Root | None) -> dict[str, Any]:
    """The root of an attempt; nothing when it came to none."""
    if root is None:
        return {}
    return {
        "name": root.image_name or root.image or "",
        "digest": root.image_digest,
        "host": root.host,
        "root": root.digest,
    }


def limits_asked(limits: Limits | None) -> dict[str, Any]:
    """The network and every limit that the sandbox was asked to have; `enforced` beside it says how."""
    if limits is None:
        return {}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in asdict(limits).items()
        if value not in (None, ())
    }
