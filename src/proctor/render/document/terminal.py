"""A document for a terminal: plain lines of a given width. Numbers are the last thing to be cut."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from string import ascii_uppercase
from typing import NamedTuple

from proctor.model.document import (
    MARKS,
    Block,
    Cell,
    Chart,
    Code,
    Document,
    Entries,
    Facts,
    Listed,
    Look,
    Matrix,
    Section,
    Sign,
    Table,
    Text,
    as_cell,
)
from proctor.render.layout import Columns, broken, lay_out, shorten, width

MARGIN = "  "
LEAST_LABEL = 12
COLOURS: dict[Look, str] = {
    "pass": "32", "part": "32", "fail": "31", "own": "31", "error": "33;1", "none": "2",
}  # fmt: skip
"""As a terminal's numbers."""
_NARROW = str.maketrans({"\u202f": " ", "\u00a0": " "})


Style = Callable[[str, str], str]
"""A text and the number of a colour, made into what a terminal shows."""


def _plain(text: str, _: str) -> str:
    return text


class Line(NamedTuple):
    """A line, and whether it stands out."""

    text: str
    bold: bool = False


def lines(document: Document, room: int | None, *, style: Style = _plain) -> Iterator[Line]:
    """The whole document. `room`: how many characters a line may have; None for as many as it needs.

    `style`: how a sign gets its colour.
    """
    yield from _said(document.headline, room, bold=True)
    if document.about:
        yield from _facts(Facts(pairs=document.about), room)
    for warning in document.warnings:
        yield from _said(f"! {warning}", room)
    for section in document.sections:
        if not section.aside:
            yield from _section(_with_paths(section, document.folder), room, style)
    if document.links:
        yield Line("")
    for link in _paths(document.links, document.folder):
        yield from _said(_shown(link), room)


def _with_paths(section: Section, folder: str) -> Section:
    """The section with paths instead of links that cannot be followed from a terminal."""
    blocks: list[Block] = []
    for block in section.blocks:
        match block:
            case Listed():
                blocks.append(Listed(items=_paths(block.items, folder)))
            case Entries():
                entries = (replace(each, items=_paths(each.items, folder)) for each in block.entries)
                blocks.append(replace(block, entries=tuple(entries)))
            case _:
                blocks.append(block)
    return replace(section, blocks=tuple(blocks))


def _paths(items: Iterable[Cell | str], folder: str) -> tuple[Cell, ...]:
    return tuple(
        replace(cell, text=f"{cell.text}: {os.path.normpath(os.path.join(folder, cell.href))}")  # noqa: PTH118 - addresses, not files
        if cell.href
        else cell
        for cell in map(as_cell, items)
    )


def clean(text: str) -> str:
    """Text that cannot steer a terminal, with plain spaces: control characters become `�`."""
    return "".join(each if each.isprintable() else "�" for each in text.translate(_NARROW))


def _said(text: str, room: int | None, *, bold: bool = False, margin: str = "") -> Iterator[Line]:
    for line in broken(margin + clean(text), room, MARGIN):
        yield Line(line, bold)


def _section(section: Section, room: int | None, style: Style) -> Iterator[Line]:
    shown: list[Line] = []
    for block in section.blocks:
        drawn = _matrix(block, room, style) if isinstance(block, Matrix) else _block(block, room)
        found = list(drawn)
        if shown and found and not isinstance(block, Text):
            shown.append(Line(""))
        shown += found
    if section.note:
        shown += _said(section.note, room)
    if shown and section.title:
        yield Line("")
        yield from _said(section.title, room, bold=True)
    yield from shown


def _block(block: Block, room: int | None) -> Iterator[Line]:
    match block:
        case Table():
            yield from _table(block, room)
        case Chart():
            yield from _letters("\n".join(block.text), "", room)
        case Facts():
            yield from _facts(block, room)
        case Text():
            yield from _said(block.text, room)
        case Listed():
            for item in block.items:
                yield from _said(f"- {_shown(as_cell(item))}", room)
        case Code():
            yield from _letters(block.text, MARGIN, None)
        case Entries():
            yield from _entries(block, room)


def _matrix(matrix: Matrix, room: int | None, style: Style) -> Iterator[Line]:
    """Columns that do not fit beside each other go below; their names become letters where they are long."""
    rows = matrix.rows[: matrix.brief] if matrix.brief else matrix.rows
    names = [clean(column.title) for column in matrix.columns]
    longest = [max((len(cells[at]) for _, cells in rows), default=0) for at in range(len(names))]
    room = room or 10_000
    left = max((width(clean(label)) for label, _ in rows), default=0)
    wide = [max(width(name), count) for name, count in zip(names, longest, strict=True)]
    if left + sum(each + 2 for each in wide) > room:
        letters = [ascii_uppercase[at] if at < 26 else f"A{at}" for at in range(len(names))]
        for letter, name in zip(letters, names, strict=True):
            yield from _said(f"{letter} = {name}", room)
        names, wide = letters, [max(len(a), b) for a, b in zip(letters, longest, strict=True)]
    left = min(left, max(LEAST_LABEL, room - sum(each + 2 for each in wide)))
    for part in _side_by_side(wide, room - left):
        yield Line("  ".join([" " * left, *(names[at].ljust(wide[at]) for at in part)]).rstrip())
        for label, cells in rows:
            shown = shorten(clean(label), left)
            fields = [_signs(cells[at], wide[at], room - left - 2, style) for at in part]
            yield Line("  ".join([shown + " " * (left - width(shown)), *fields]).rstrip())
    more = (matrix.total or len(matrix.rows)) - len(rows)
    if more > 0:
        yield from _said(f"… and {more} more; {matrix.rest}", room)
    if matrix.legend:
        yield from _said("   ".join(f"{sign.text} {meaning}" for sign, meaning in matrix.legend), room)


def _side_by_side(wide: Sequence[int], room: int) -> list[list[int]]:
    """Which columns fit beside each other; the others come below."""
    parts: list[list[int]] = [[]]
    used = 0
    for at, each in enumerate(wide):
        if parts[-1] and used + each + 2 > room:
            parts.append([])
            used = 0
        parts[-1].append(at)
        used += each + 2
    return parts


def _signs(signs: Sequence[Sign], wide: int, room: int, style: Style) -> str:
    """Of more signs than fit the first, and how many there are besides."""
    shown = signs if len(signs) <= room else signs[: room - 6]
    drawn = (style(each.text, COLOURS[each.look]) for each in shown)
    more = f" +{len(signs) - len(shown)}" if len(shown) < len(signs) else ""
    return "".join(drawn) + more + " " * (wide - len(shown) - len(more))


def _shown(cell: Cell) -> str:
    return f"{cell.text} ({cell.note})" if cell.note else cell.text


def _table(table: Table, room: int | None) -> Iterator[Line]:
    kinds = [column.kind for column in table.columns]
    columns = Columns(
        right=[at for at, kind in enumerate(kinds) if kind == "number"],
        whole=[at for at, kind in enumerate(kinds) if kind == "whole"],
        wrap=[at for at, kind in enumerate(kinds) if kind == "prose"],
        spare=[at for at, column in enumerate(table.columns) if column.spare],
    )
    if table.title:
        yield from _said(table.title, room, bold=True)
    chosen = table.rows[: table.brief] if table.brief else table.rows
    rows = [[clean(_shown(as_cell(cell))) for cell in row] for row in chosen]
    layout = lay_out([clean(column.title) for column in table.columns], rows, columns, room)
    for number, part in enumerate(layout.blocks):
        if number:
            yield Line("")
        yield from (Line(line, bold=True) for line in part.header)
        yield from (Line(line) for line in part.body)
    if layout.dropped:
        them = "it" if len(layout.dropped) == 1 else "them"
        yield from _said(f"not shown: {', '.join(layout.dropped)}; a wider terminal shows {them}", room)
    left = (table.total or len(table.rows)) - len(rows)
    if left > 0:
        yield from _said(f"and {left} more; {table.rest}", room)
    if table.caption:
        yield from _said(table.caption, room)


def _facts(facts: Facts, room: int | None) -> Iterator[Line]:
    wide = max(width(clean(name)) for name, _ in facts.pairs)
    for name, value in facts.pairs:
        said = _shown(as_cell(value))
        if as_cell(value).code and room:
            said = shorten(clean(said), max(20, room - wide - 4))
        text = f"{MARGIN}{clean(name):{wide}}  {clean(said)}"
        yield from map(Line, broken(text, room, " " * (wide + 2)))


def _entries(block: Entries, room: int | None) -> Iterator[Line]:
    shown = block.entries[: block.brief] if block.brief else block.entries
    for number, entry in enumerate(shown):
        if number:
            yield Line("")
        sign = MARKS.get(entry.mark.tone, "·")
        yield from _said(f"{sign} {entry.mark.text}: {entry.title}", room, bold=True)
        for said in filter(None, (entry.text, *entry.notes)):
            yield from _said(said, room, margin=MARGIN)
        for item in entry.items:
            yield from _said(f"- {_shown(as_cell(item))}", room, margin=MARGIN)
        yield from _letters("" if entry.folded else entry.code, MARGIN + MARGIN, None)
    if len(shown) < len(block.entries):
        yield from _said(f"and {len(block.entries) - len(shown)} more", room)


def _letters(text: str, margin: str, room: int | None) -> Iterator[Line]:
    """Lines that are not wrapped."""
    for line in text.splitlines():
        said = margin + clean(line)
        yield Line(shorten(said, room) if room else said)
