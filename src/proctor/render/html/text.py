"""Text of others inside a page: escaped, with numbers kept on one line with their units."""

from __future__ import annotations

import re
from html import escape

_UNIT = re.compile(r"(?<=\d) (?=(?:[nµm]?s|min|h|pp|[KMG]?i?B)\b|%|–)")
_WHOLE = re.compile(r"(?<![\w-])(?:--[a-z][a-z-]*|\d{4}-\d\d-\d\d)(?![\w-])")
"""Options and dates, which browsers would break at their hyphens."""
_RANGE = re.compile(r"(?<=\d)–(?=\d)")


def prose(text: str) -> str:
    """A sentence."""
    joined = _UNIT.sub("\u00a0", escape(text))
    joined = _WHOLE.sub(r"<span class=nw>\g<0></span>", joined)
    return _RANGE.sub("\u2060–\u2060", joined.replace("– ", "–\u2060\u00a0"))
