"""Take secrets out of byte streams before anything is written. Values are known; names are shown instead."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL)", re.IGNORECASE)
_SHORTEST = 8
"""A shorter value would redact ordinary words."""


def secrets_in(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables whose name says that their value is secret."""
    return {
        name: value
        for name, value in environ.items()
        if _SECRET_NAME.search(name) and len(value) >= _SHORTEST
    }


class Redactor:
    """Replaces known secrets, also where a secret is split over two chunks."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        values = {value.encode(): f"[redacted:{name}]".encode() for name, value in secrets.items() if value}
        self._values = values
        self._overlap = max((len(value) for value in values), default=1) - 1
        ordered = sorted(values, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, ordered))) if ordered else None

    def whole(self, data: bytes) -> bytes:
        """All of it at once."""
        if self._pattern is None:
            return data
        return self._pattern.sub(lambda match: self._values[match[0]], data)

    def text(self, data: str) -> str:
        """A text."""
        return self.whole(data.encode()).decode(errors="replace") if self._pattern else data

    def stream(self) -> RedactedStream:
        """A new stream with these secrets."""
        return RedactedStream(self, self._overlap)


class RedactedStream:
    """Holds back just enough bytes to see a secret that has only half arrived."""

    def __init__(self, redactor: Redactor, overlap: int) -> None:
        self._redactor = redactor
        self._overlap = overlap
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What may be written now."""
        if not self._overlap:
            return self._redactor.whole(data)
        clean = self._redactor.whole(self._held + data)
        cut = max(0, len(clean) - self._overlap)
        self._held = clean[cut:]
        return clean[:cut]

    def end(self) -> bytes:
        """The rest."""
        rest, self._held = self._redactor.whole(self._held), b""
        return rest
