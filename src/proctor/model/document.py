"""A result as a document: a headline, warnings, and sections of tables, charts and facts. Pure.

Every kind of result is built as one of these, and each renderer shows every kind: no fact is formatted twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import Any, Literal

SCHEMA_VERSION = 1

Tone = Literal["", "good", "warn", "bad"]
"""What an outcome means to a reader; nothing for one that is neither good nor bad."""
Kind = Literal["text", "number", "whole", "prose"]
"""How a column behaves where there is little room: text is cut, prose is wrapped, the others stay."""
Look = Literal["pass", "part", "fail", "own", "error", "none"]
"""What a sign of a matrix looks like: passed, passed in part, failed; a letter for what else an agent caused;
hatched for what it did not cause; empty for what has no result."""
MARKS: Mapping[Tone, str] = {"good": "✓", "warn": "!", "bad": "✗"}
"""A sign for each tone, because a colour alone says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One field of a table: what is shown, and what it means to a program."""

    text: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    """The number behind the text, and the ends of an interval."""
    tone: Tone = ""
    badge: bool = False
    """Whether it is an outcome, shown as a badge."""
    href: str = ""
    note: str = ""
    """A remark in smaller letters after the text."""
    code: bool = False
    strong: bool = False
    share: float | None = None
    """A part of a whole, from 0 to 1: a bar on pages."""


def number(text: str, value: float | None, *, strong: bool = False, note: str = "") -> Cell:
    """A number in the form in which people read it."""
    return Cell(text=text, value=value, strong=strong, note=note)


def interval(text: str, low: float | None, high: float | None) -> Cell:
    """Two ends in the form in which people read them."""
    return Cell(text=text, low=low, high=high)


def outcome(text: str, tone: Tone, note: str = "") -> Cell:
    """A verdict or another outcome."""
    return Cell(text=text, tone=tone, badge=True, note=note)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    title: str
    kind: Kind = "text"
    spare: bool = False
    """Whether it goes where there is no room for all columns."""
    note: str = ""
    """A second line of the heading, on pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells; a plain text is a cell too. The first column is the label of its row."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell | str, ...], ...]
    title: str = ""
    caption: str = ""
    folded: str = ""
    """What it says while it is folded away on a page; empty for a table that is open."""
    brief: int = 0
    """How many rows a terminal shows; 0 for all."""
    total: int = 0
    """How many rows there would be, when these are not all of them."""
    rest: str = "--json lists all of them"
    """Where those are that are not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A picture: a call that returns SVG. Its arguments are the data, and all are given by name."""

    title: str
    draw: partial[str] | Callable[[], partial[str]]
    """The call, or a function that makes it: then nothing is gathered or imported until a page wants it."""
    caption: str = ""
    """How to read the picture, and what it does not show."""
    text: tuple[str, ...] = ()
    """Lines that say the same where there are no pictures; none where a table has the numbers."""

    @property
    def call(self) -> partial[str]:
        """What draws it."""
        return self.draw if isinstance(self.draw, partial) else self.draw()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Names and values."""

    pairs: tuple[tuple[str, Cell | str], ...]
    tiles: bool = False
    """Whether these are the key numbers of the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A paragraph."""

    text: str
    quiet: bool = False
    """Whether it is a caption, in smaller letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """Items, one per line."""

    items: tuple[Cell | str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """A log, a command or a file, letter by letter."""

    text: str
    title: str = ""
    """What it says while it is folded away on a page; empty for one that is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing with an outcome: its name, a sentence, remarks and the places that show it."""

    title: str
    mark: Cell
    text: str
    notes: tuple[str, ...] = ()
    items: tuple[Cell | str, ...] = ()
    code: str = ""
    folded: str = ""
    """What its code says while it is folded away on a page; a terminal then leaves it out."""
    name: str = ""
    """The part of an address that leads here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """Several things, each with its outcome."""

    entries: tuple[Entry, ...]
    brief: int = 0
    """How many a terminal shows; 0 for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """One trial of a matrix, or one task: a single character, and what it looks like on a page."""

    text: str
    look: Look
    tooltip: str = ""
    href: str = ""
    level: float | None = None
    """How much of it is filled, from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Signs in rows and columns: tasks and who took part. Its text form has a letter for each sign."""

    columns: tuple[Column, ...]
    """Who took part; the note says what they came to."""
    rows: tuple[tuple[str, tuple[tuple[Sign, ...], ...]], ...]
    """A label, and the signs of each column; no sign where somebody had nothing to do."""
    legend: tuple[tuple[Sign, str], ...] = ()
    """What the signs mean."""
    counted: bool = True
    """Whether the number of passes stands behind the signs of each field on a page."""
    caption: str = ""
    brief: int = 0
    """How many rows a terminal shows; 0 for all."""
    total: int = 0
    """How many rows there would be, when these are not all of them."""
    rest: str = "--json lists all of them"
    """Where those are that are not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Parts that are folded away on a page, and left out in a terminal."""

    title: str
    blocks: tuple[Block, ...]


Block = Table | Chart | Facts | Text | Listed | Code | Entries | Matrix | Fold


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a document under a heading; without a title it belongs to the headline."""

    title: str = ""
    blocks: tuple[Block, ...] = ()
    note: str = ""
    name: str = ""
    """The part of an address that leads here."""
    aside: bool = False
    """Whether a terminal leaves it out, because the page and the file have it."""

    def __bool__(self) -> bool:
        return bool(self.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One result."""

    kind: str
    """run, perf, ab, time, vet, history, aa, gate, compare, race, leaderboard, site or trials"""
    title: str
    headline: str
    """What came out, in a sentence."""
    verdict: str = ""
    tone: Tone = ""
    about: tuple[tuple[str, Cell | str], ...] = ()
    """What the headline is about: the run, the two sides."""
    warnings: tuple[str, ...] = ()
    """What to know before quoting the headline."""
    sections: tuple[Section, ...] = ()
    folder: str = ""
    """Where the page is: addresses in cells are relative to it."""
    links: tuple[Cell, ...] = ()
    """Pages that belong to this one."""
    footer: str = ""


def as_cell(cell: Cell | str) -> Cell:
    """A cell, also of a plain text."""
    return Cell(text=cell) if isinstance(cell, str) else cell


def filled(sections: Iterable[Section]) -> tuple[Section, ...]:
    """The sections that have something to show."""
    return tuple(section for section in sections if section)


def to_mapping(document: Document, *, drawn: bool = False) -> dict[str, Any]:
    """Plain data for JSON. Parts have a `type`; what is empty is left out. `drawn`: charts have their SVG."""
    return {"schema_version": SCHEMA_VERSION, **dict(_fields(document, drawn))}


def _plain(value: Any, drawn: bool) -> Any:
    if is_dataclass(value):
        kind = {"type": type(value).__name__.lower()} if isinstance(value, Block) else {}
        return {**kind, **dict(_fields(value, drawn))}
    if callable(value):
        call = value if isinstance(value, partial) else value()
        picture = {"svg": call()} if drawn else {}
        return {"chart": call.func.__name__, "data": _plain(call.keywords, drawn), **picture}
    if isinstance(value, Mapping):
        return {str(name): _plain(each, drawn) for name, each in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str) or not isinstance(value, Iterable):
        return value
    return [_plain(each, drawn) for each in value]


def _fields(part: Any, drawn: bool) -> Iterator[tuple[str, Any]]:
    for each in fields(part):
        value = getattr(part, each.name)
        if value is not None and value is not False and value not in ("", ()):
            yield each.name, _plain(value, drawn)
