"""Lists in pages: `limit` and an opaque `cursor`, and `{items, next}` as the answer."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from fastapi import Depends, Query

from proctor.server.problem import Problem

MOST = 500


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a list is wanted."""

    limit: int
    after: Any = None
    """What the last cursor stood for: whatever the route gave to `listed`. None: from the beginning."""


async def _page(
    limit: Annotated[int, Query(ge=1, le=MOST, description="How many items at most.")] = 50,
    cursor: Annotated[
        str | None, Query(max_length=500, description="`next` of the page before this one.")
    ] = None,
) -> Page:
    return Page(limit, decode(cursor) if cursor else None)


Paged = Annotated[Page, Depends(_page)]


def listed(items: Sequence[Any], *, after: Any = None, **more: Any) -> dict[str, Any]:
    """A page as its answer; `after`: what the next page goes on from, None at the end."""
    return {"items": items, "next": None if after is None else encode(after), **more}


def encode(place: Any) -> str:
    """A place in a list as a cursor."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def decode(cursor: str) -> Any:
    """The place that a cursor stands for."""
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise Problem("bad_request", "The cursor is not one that this server gave") from None
