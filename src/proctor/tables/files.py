"""The tables of a run as files in one new folder: complete or absent, never into one that holds something."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from proctor.runfolder.files import new_folder
from proctor.tables.columns import KINDS, Table
from proctor.tables.source import Source

Format = Literal["csv", "parquet"]


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
        from proctor.tables.csv_file import write_csv

        return write_csv(table, path)
    from importlib.metadata import version

    from proctor.tables.parquet import write_parquet

    with path.open("wb") as sink:
        by = f"proctor-bench version {version('proctor-bench')}"
        return write_parquet(sink, table.columns, table.rows(), created_by=by)
