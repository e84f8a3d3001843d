"""Our writer against the reference reader. What our own reader of the footer shows needs no library."""

from __future__ import annotations

import io
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.tables import parquet
from proctor.tables.columns import Column
from proctor.tables.parquet import MAGIC, varint, write_parquet

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(allow_nan=False, width=64),
    "bool": st.booleans(),
    "text": st.text(st.characters(exclude_categories=["Cs"])),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Column], list[list[Any]]]:
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=20))
    columns = [Column(f"{kind}.{at} é", kind) for at, kind in enumerate(kinds)]
    cells = [st.none() | VALUES[kind] for kind in kinds]
    return columns, draw(st.lists(st.tuples(*cells).map(list), max_size=40))


def written(columns, rows) -> bytes:
    sink = io.BytesIO()
    assert write_parquet(sink, columns, iter(rows), created_by="proctor-bench version 0") == len(rows)
    return sink.getvalue()


def test_a_file_begins_and_ends_as_the_format_says():
    data = written([Column("a", "int")], [[1], [None]])
    assert data.startswith(MAGIC)
    assert data.endswith(MAGIC)
    size = struct.unpack("<L", data[-8:-4])[0]
    assert b"proctor-bench version 0" in data[-8 - size : -8]


@pytest.mark.parametrize(
    ("value", "expected"), [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02")]
)
def test_varints(value, expected):
    assert varint(value) == expected


@pytest.mark.needs("pyarrow")
@given(tables())
def test_pyarrow_reads_back_what_was_written(table):
    import pyarrow.parquet as pq

    columns, rows = table
    found = pq.read_table(io.BytesIO(written(columns, rows)))
    assert found.column_names == [column.name for column in columns]
    assert found.num_rows == len(rows)
    for at, column in enumerate(columns):
        assert found.column(at).to_pylist() == [row[at] for row in rows], column


@pytest.mark.needs("pyarrow")
def test_row_groups_are_bounded_and_types_are_told(monkeypatch):
    import pyarrow.parquet as pq

    monkeypatch.setattr(parquet, "ROWS_PER_GROUP", 10)
    columns = [Column("n", "int"), Column("x", "float"), Column("b", "bool"), Column("t", "text")]
    rows = [[at, at / 3, at % 2 == 0, f"row {at}"] for at in range(25)]
    file = pq.ParquetFile(io.BytesIO(written(columns, rows)))
    assert file.metadata.num_row_groups == 3
    assert file.metadata.created_by == "proctor-bench version 0"
    assert [str(each.type) for each in file.schema_arrow] == ["int64", "double", "bool", "string"]
    assert [list(row.values()) for row in file.read().to_pylist()] == rows
    assert file.metadata.row_group(0).column(0).compression == "GZIP"


@pytest.mark.needs("pyarrow")
def test_no_rows_and_many_columns_are_fine():
    import pyarrow.parquet as pq

    columns = [Column(f"c{at}", "text") for at in range(500)]
    assert pq.read_table(io.BytesIO(written(columns, []))).num_columns == 500
    assert pq.read_table(io.BytesIO(written(columns, [[None] * 500] * 3))).num_rows == 3


def test_a_group_is_smaller_when_the_table_is_wide(monkeypatch):
    monkeypatch.setattr(parquet, "CELLS_PER_GROUP", 4)
    narrow = written([Column("a", "int")], [[at] for at in range(8)])
    wide = written([Column(f"c{at}", "int") for at in range(4)], [[1] * 4] * 8)
    assert wide.count(b"\x1f\x8b") > 4 * narrow.count(b"\x1f\x8b")
