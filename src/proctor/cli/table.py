"""Plain tables and JSON for the terminal. No rich: a reading command must start at once."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Any

from proctor.cli.terminal import styled
from proctor.render.layout import Columns, broken, lay_out

if TYPE_CHECKING:
    from proctor.model.document import Document

_NESTED = (dict, list, tuple)
LONG = 1000
"""A list of more than this is printed with an item per line: who reads so much is no person."""
LEAST_WIDTH = 40
"""Terminals narrower than this are treated as if they had so many columns."""


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.writelines(_pieces(value, "\n"))
    sys.stdout.write("\n")


def _pieces(value: Any, line: str) -> Iterator[str]:
    """What `json.dump` writes with an indent of two, in a third of its time; `line` begins a line here."""
    if isinstance(value, list | tuple) and len(value) > LONG:
        yield from _items(value, line)
        return
    if not isinstance(value, _NESTED) or not _has_lists(value):
        yield _json(value, line)
        return
    deeper = f"{line}  "
    ends = "{}" if isinstance(value, dict) else "[]"
    between = ends[0]
    for each in value:
        yield between + deeper
        if isinstance(value, dict):
            yield f"{_json_key(each)}: "
        yield from _pieces(value[each] if isinstance(value, dict) else each, deeper)
        between = ","
    yield line + ends[1]


def _items(value: Sequence[Any], line: str) -> Iterator[str]:
    encode = json.JSONEncoder(default=str).encode
    between = f"[{line}  "
    for each in value:
        yield between
        yield encode(each)
        between = f",{line}  "
    yield f"{line}]"


def _has_lists(value: Any) -> bool:
    """Whether something may be long; what is short is put together at once."""
    if not isinstance(value, dict):
        return bool(value)
    return any(map(_has_lists, [each for each in value.values() if isinstance(each, _NESTED)]))


def _json(value: Any, line: str) -> str:
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        return repr(value)
    if isinstance(value, _NESTED):
        deeper = f"{line}  "
        if isinstance(value, dict):
            inside = [f"{_json_key(name)}: {_json(each, deeper)}" for name, each in value.items()]
            return f"{{{deeper}{f',{deeper}'.join(inside)}{line}}}" if inside else "{}"
        inside = [_json(each, deeper) for each in value]
        return f"[{deeper}{f',{deeper}'.join(inside)}{line}]" if inside else "[]"
    return json.dumps(value, default=str)


@lru_cache(maxsize=1024, typed=True)
def _json_key(name: Any) -> str:
    return encode_basestring_ascii(name) if isinstance(name, str) else json.dumps({name: 0})[1:-4]


def print_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    right: Collection[int] = (),
    whole: Collection[int] = (),
    spare: Collection[int] = (),
    wrap: Collection[int] = (),
    more: str = "--json",
) -> None:
    """A table that fits the terminal. Columns as in `Columns`; `more`: what shows those left out."""
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    columns = Columns(right=right, whole=whole, spare=spare, wrap=wrap)
    layout = lay_out(headers, cells, columns, line_width())
    for number, block in enumerate(layout.blocks):
        if number:
            print()
        for line in block.header:
            print(bold(line))
        for line in block.body:
            print(line)
    if layout.dropped:
        them = "it" if len(layout.dropped) == 1 else "them"
        say(f"not shown: {', '.join(layout.dropped)}; {more} or a wider terminal shows {them}")


def print_document(document: Document) -> None:
    """A whole result, as wide as the terminal."""
    from proctor.render.document.terminal import lines

    shown = lines(document, line_width(), style=styled) if colour() else lines(document, line_width())
    for line in shown:
        print(bold(line.text) if line.bold else line.text)


def say(text: str, *, indent: str = "", heading: bool = False) -> None:
    """A sentence, continued on the next line where the terminal ends; `indent` is before those lines."""
    for line in broken(text, line_width(), indent):
        print(bold(line) if heading else line)


def line_width() -> int | None:
    """How wide a line may be: the terminal, else COLUMNS, else as wide as it gets."""
    try:
        stated = int(os.environ.get("COLUMNS", ""))
    except ValueError:
        stated = 0
    if not sys.stdout.isatty():
        return max(stated, LEAST_WIDTH) if stated > 0 else None
    try:
        found = os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        found = 0
    return max(found or stated or 80, LEAST_WIDTH)


def bold(text: str) -> str:
    """Bold on a terminal that wants colour, plain elsewhere."""
    return styled(text, "1") if colour() else text


def colour() -> bool:
    """Whether to send colours: a terminal, and NO_COLOR not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def printable(text: object) -> str:
    """Text that cannot steer a terminal: control characters and broken Unicode become `�`."""
    return "".join(each if each.isprintable() else "�" for each in str(text))


def seconds(value: float | None) -> str:
    """A duration in the unit a person would choose."""
    if value is None:
        return "–"
    if value == 0:
        return "0 s"
    for limit, factor, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (120.0, 1.0, "s")):
        if abs(value) < limit:
            return f"{value * factor:.3g} {unit}"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
