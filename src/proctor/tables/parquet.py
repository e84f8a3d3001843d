"""Write Parquet with nothing but the standard library: flat tables of text, integers, floats and truths.

The usual library for it is pyarrow, of 170 MB (docs/decisions/0009).

Every column is optional; a page of it holds definition levels (is there a value?) as runs, then the values in
plain encoding, gzip around both. One page per column and row group, so memory is bounded by a row group. The
metadata at the end is Thrift in its compact protocol, as the format asks.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, BinaryIO

from proctor.tables.columns import Column, Type

MAGIC = b"PAR1"
ROWS_PER_GROUP = 10_000
CELLS_PER_GROUP = 1_000_000
_PHYSICAL: dict[Type, int] = {"bool": 0, "int": 2, "float": 5, "text": 6}
_UTF8, _OPTIONAL, _PLAIN, _RLE, _GZIP, _DATA_PAGE = 0, 1, 0, 3, 2, 0

# Types of Thrift's compact protocol.
_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _zigzag(value: int) -> bytes:
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


def _binary(value: str) -> bytes:
    data = value.encode("utf-8", "replace")
    return varint(len(data)) + data


def _list(kind: int, items: Sequence[bytes]) -> bytes:
    head = bytes([len(items) << 4 | kind]) if len(items) < 15 else bytes([0xF0 | kind]) + varint(len(items))
    return head + b"".join(items)


def _struct(*fields: tuple[int, int, bytes]) -> bytes:
    """Fields as (number, type, encoded value), in order of number, all less than 16 apart."""
    out, last = bytearray(), 0
    for number, kind, value in fields:
        out.append((number - last) << 4 | kind)
        out += value
        last = number
    return bytes(out) + b"\0"


@dataclass(frozen=True, slots=True)
class _Chunk:
    """One column of one row group, as written."""

    column: Column
    offset: int
    values: int
    plain: int
    packed: int

    def to_thrift(self) -> bytes:
        about = _struct(
            (1, _I32, _zigzag(_PHYSICAL[self.column.type])),
            (2, _LIST, _list(_I32, [_zigzag(_PLAIN), _zigzag(_RLE)])),
            (3, _LIST, _list(_BINARY, [_binary(self.column.name)])),
            (4, _I32, _zigzag(_GZIP)),
            (5, _I64, _zigzag(self.values)),
            (6, _I64, _zigzag(self.plain)),
            (7, _I64, _zigzag(self.packed)),
            (9, _I64, _zigzag(self.offset)),
        )
        return _struct((2, _I64, _zigzag(self.offset)), (3, _STRUCT, about))


def write_parquet(
    sink: BinaryIO, columns: Sequence[Column], rows: Iterable[Sequence[Any]], *, created_by: str
) -> int:
    """Write the table; how many rows it has. Each row has its values in the order of the columns."""
    sink.write(MAGIC)
    most = max(1, min(ROWS_PER_GROUP, CELLS_PER_GROUP // max(1, len(columns))))
    groups: list[bytes] = []
    total = 0
    held: list[Sequence[Any]] = []
    for row in rows:
        held.append(row)
        if len(held) == most:
            groups.append(_write_group(sink, columns, held))
            total += len(held)
            held = []
    if held:
        groups.append(_write_group(sink, columns, held))
        total += len(held)
    metadata = _metadata(columns, groups, total, created_by)
    sink.write(metadata + struct.pack("<L", len(metadata)) + MAGIC)
    return total


def _write_group(sink: BinaryIO, columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> bytes:
    chunks = [_write_chunk(sink, column, [row[at] for row in rows]) for at, column in enumerate(columns)]
    return _struct(
        (1, _LIST, _list(_STRUCT, [chunk.to_thrift() for chunk in chunks])),
        (2, _I64, _zigzag(sum(chunk.plain for chunk in chunks))),
        (3, _I64, _zigzag(len(rows))),
    )


def _write_chunk(sink: BinaryIO, column: Column, values: Sequence[Any]) -> _Chunk:
    levels = _levels(values)
    page = (
        struct.pack("<L", len(levels))
        + levels
        + _plain([each for each in values if each is not None], column.type)
    )
    press = zlib.compressobj(6, zlib.DEFLATED, 31)
    packed = press.compress(page) + press.flush()
    header = _struct(
        (1, _I32, _zigzag(_DATA_PAGE)),
        (2, _I32, _zigzag(len(page))),
        (3, _I32, _zigzag(len(packed))),
        (
            5,
            _STRUCT,
            _struct(
                (1, _I32, _zigzag(len(values))),
                (2, _I32, _zigzag(_PLAIN)),
                (3, _I32, _zigzag(_RLE)),
                (4, _I32, _zigzag(_RLE)),
            ),
        ),
    )
    offset = sink.tell()
    sink.write(header + packed)
    return _Chunk(column, offset, len(values), len(header) + len(page), len(header) + len(packed))


def _levels(values: Sequence[Any]) -> bytes:
    """1 where there is a value, 0 where there is none, as runs of equal levels."""
    return b"".join(
        varint(sum(1 for _ in run) << 1) + bytes([present])
        for present, run in groupby(values, key=lambda value: value is not None)
    )


def _plain(values: Sequence[Any], kind: Type) -> bytes:
    if kind == "int":
        return struct.pack(f"<{len(values)}q", *values)
    if kind == "float":
        return struct.pack(f"<{len(values)}d", *values)
    if kind == "bool":
        bits = sum(1 << at for at, value in enumerate(values) if value)
        return bits.to_bytes((len(values) + 7) // 8, "little")
    texts = [value.encode("utf-8", "replace") for value in values]
    return b"".join(struct.pack("<L", len(text)) + text for text in texts)


def _metadata(columns: Sequence[Column], groups: Sequence[bytes], rows: int, created_by: str) -> bytes:
    root = _struct((4, _BINARY, _binary("schema")), (5, _I32, _zigzag(len(columns))))
    schema = [root, *(_schema(column) for column in columns)]
    return _struct(
        (1, _I32, _zigzag(1)),
        (2, _LIST, _list(_STRUCT, schema)),
        (3, _I64, _zigzag(rows)),
        (4, _LIST, _list(_STRUCT, groups)),
        (6, _BINARY, _binary(created_by)),
    )


def _schema(column: Column) -> bytes:
    fields = [
        (1, _I32, _zigzag(_PHYSICAL[column.type])),
        (3, _I32, _zigzag(_OPTIONAL)),
        (4, _BINARY, _binary(column.name)),
    ]
    if column.type == "text":
        fields.append((6, _I32, _zigzag(_UTF8)))
    return _struct(*fields)
