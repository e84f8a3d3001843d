"""A table as CSV that a spreadsheet can open safely: text that looks like a formula stays text."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

from proctor.tables.columns import Table

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def write_csv(table: Table, path: Path) -> int:
    """Write the table with a header; how many rows it has. UTF-8, as RFC 4180 has it."""
    number = 0
    with path.open("w", encoding="utf-8", errors="replace", newline="") as sink:
        writer = csv.writer(sink, lineterminator="\r\n")
        writer.writerow([harmless(column.name) for column in table.columns])
        for row in table.rows():
            writer.writerow([cell(value) for value in row])
            number += 1
    return number


def cell(value: Any) -> str:
    """A value as CSV has it: null is empty, floats keep every digit, true and false are words."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return harmless(value) if isinstance(value, str) else repr(value)


def harmless(text: str) -> str:
    """Text that no spreadsheet executes: a `'` before what would start a formula."""
    text = text.replace("\0", "\ufffd")
    looks = text.lstrip(" ").startswith(_FORMULA) and not _NUMBER.fullmatch(text)
    return f"'{text}" if looks else text
