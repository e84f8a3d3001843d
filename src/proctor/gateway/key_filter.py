"""Takes a provider's keys out of what it answers, also where one is cut in two by the pieces of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

REDACTED = b"[redacted]"
_SHORTEST = 12
"""Shorter ones are words such as `none` that stand for no key, and that an answer may well have."""


class KeyFilter:
    """For one answer."""

    def __init__(self, keys: Iterable[str]) -> None:
        named = [key for key in keys if len(key) >= _SHORTEST]
        escaped = [key.replace("/", "\\/") for key in named if "/" in key]
        self._keys = tuple(key.encode() for key in (*named, *escaped))
        self._held = b""

    def headers(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Headers without them."""
        for key in self._keys:
            word = key.decode()
            if any(word in value for value in headers.values()):
                marker = REDACTED.decode()
                headers = {name: value.replace(word, marker) for name, value in headers.items()}
        return headers

    def whole(self, body: bytes) -> bytes:
        """A body without them."""
        for key in self._keys:
            if key in body:
                body = body.replace(key, REDACTED)
        return body

    def feed(self, piece: bytes) -> bytes:
        """What of a stream may pass now: all but an end that may be the beginning of a key."""
        if self._held:
            piece, self._held = self._held + piece, b""
        for key in self._keys:
            if key in piece:
                piece = piece.replace(key, REDACTED)
        if piece.endswith(b"\n"):  # as events end, and no key has one
            return piece
        kept = min((_beginning(piece, key) for key in self._keys), default=len(piece))
        self._held = piece[kept:]
        return piece[:kept]

    def rest(self) -> bytes:
        """What was held back of a stream that is over."""
        rest, self._held = self._held, b""
        return rest


def _beginning(piece: bytes, key: bytes) -> int:
    """Where the end of a piece begins that is the beginning of a key."""
    at = piece.find(key[:1], max(0, len(piece) - len(key) + 1))
    while at >= 0:
        if key.startswith(piece[at:]):
            return at
        at = piece.find(key[:1], at + 1)
    return len(piece)
