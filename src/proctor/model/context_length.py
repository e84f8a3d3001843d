"""How services say that a conversation is too long for a model: every one in words of its own."""

from __future__ import annotations

import re

_STATUSES = frozenset({400, 413, 422})
_WORDS = re.compile(
    r"context[ _](length|window|size|limit)|maximum context|(prompt|input) is too long"
    r"|too many (input )?tokens|exceeds the maximum number of tokens",
    re.IGNORECASE,
)


def is_context_length(status: int, text: str) -> bool:
    """Whether a refusal says that the model cannot read so much at once."""
    return status in _STATUSES and bool(_WORDS.search(text))
