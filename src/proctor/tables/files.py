"""The tables of a run as files in one new folder: complete or absent, never into one that holds something."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from proctor.runfolder.files import new_folder
from proctor.tables.columns import KINDS, Table
from proctor.tables.source import Source

Format = Literal["csv", "parquet"]
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class TableFile:
    """One table that was written."""

    name: str
    rows: int
    columns: int


def write_tables(source: Source, path: Path, format_: Format) -> list[TableFile]:
    """`trials`, `attempts`, and for experiments `iterations`, in the new folder `path`."""
    written = []
    with new_folder(path) as beside:
        for kind in KINDS:
            if kind != "iterations" or source.info.kind == "experiment":
                table = source.table(kind)
                name = f"{kind}.{format_}"
                written.append(TableFile(name, _write(table, beside / name, format_), len(table.columns)))
    return written


def _write(table: Table, path: Path, format_: Format) -> int:
    if format_ == "csv":
        return write_csv(table, path)
    from importlib.metadata import version

    from proctor.tables.parquet import write_parquet

    with path.open("wb") as sink:
        by = f"proctor-bench version {version('proctor-bench')}"
        return write_parquet(sink, table.columns, table.rows(), created_by=by)


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
