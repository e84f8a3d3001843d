"""A document as Markdown: a file beside the page, a pull-request comment, the summary of a CI step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from proctor.model.document import (
    Block,
    Cell,
    Chart,
    Code,
    Document,
    Entries,
    Entry,
    Facts,
    Fold,
    Listed,
    Matrix,
    Section,
    Sign,
    Table,
    Text,
    Tone,
    as_cell,
)

SIGNS: dict[Tone, str] = {"good": "✅", "warn": "❔", "bad": "❌"}
_SPECIAL = re.compile(r"([\\`*_\[\]|#~])")


def markdown(document: Document, *, level: int = 1, most: int = 0, rest: str = "") -> str:
    """The whole document; `level`: of its heading. `most`: characters; `rest` says where the others are."""
    sign = f"{SIGNS[document.tone]} " if document.tone else ""
    title = ": ".join(filter(None, (plain(document.title), plain(document.verdict))))
    said = [f"{'#' * level} {sign}{title}"]
    said += [f"**{plain(document.headline)}**"] if document.headline else []
    if document.about:
        said.append("\n".join(f"- {plain(name)}: {_cell(value)}" for name, value in document.about))
    if document.warnings:
        said.append("\n>\n".join(f"> ⚠️ {plain(warning)}" for warning in document.warnings))
    for section in document.sections:
        said += _section(section, level + 1)
    if document.links:
        said.append("See also: " + ", ".join(_cell(link) for link in document.links))
    return "\n\n".join(_fitting([each for each in said if each], most, rest)) + "\n"


def _fitting(parts: list[str], most: int, rest: str) -> list[str]:
    """The first parts, as far as they fit; no part is cut."""
    if not most or len("\n\n".join(parts)) < most:
        return parts
    room, count = most - len(rest) - 4, 0
    while count < len(parts) and room >= len(parts[count]):
        room -= len(parts[count]) + 2
        count += 1
    return [*parts[:count], rest]


def plain(text: str) -> str:
    """Text as text: no markup, no HTML, and no mentions of users."""
    one_line = " ".join(text.split())
    escaped = one_line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", escaped).replace("@", "@\u200b")


def _section(section: Section, level: int) -> Iterator[str]:
    shown = [said for block in section.blocks for said in _block(block, level + 1)]
    if section.note:
        shown.append(plain(section.note))
    if shown and section.title:
        yield f"{'#' * level} {plain(section.title)}"
    yield from shown


def _block(block: Block, level: int) -> Iterator[str]:
    match block:
        case Table() | Matrix():
            yield from _table(block, level) if isinstance(block, Table) else _matrix(block)
        case Chart():
            if block.text:
                yield _code("\n".join(block.text))
        case Facts():
            yield "\n".join(f"- {plain(name)}: {_cell(value)}" for name, value in block.pairs)
        case Text():
            yield plain(block.text)
        case Listed():
            yield "\n".join(f"- {_cell(item)}" for item in block.items)
        case Code():
            yield from ([plain(block.title)] if block.title else [])
            yield _code(block.text)
        case Entries():
            yield from (_entry(entry, level) for entry in block.entries)
        case Fold():
            yield f"{'#' * level} {plain(block.title)}"
            yield from (said for inner in block.blocks for said in _block(inner, level + 1))


def _matrix(matrix: Matrix) -> Iterator[str]:
    head = ["", *(plain(column.title) for column in matrix.columns)]
    rows = [[plain(label), *map(_signs, cells)] for label, cells in matrix.rows]
    notes = ["", *(plain(column.note) for column in matrix.columns)]
    told = [notes] if any(notes) else []
    yield "\n".join(map(_row, (head, [":--"] * len(head), *told, *rows)))
    left = (matrix.total or len(matrix.rows)) - len(rows)
    if left > 0:
        yield plain(f"And {left} more; {matrix.rest}.")
    yield ", ".join(f"{_signs((sign,))} {plain(meaning)}" for sign, meaning in matrix.legend)
    if matrix.caption:
        yield plain(matrix.caption)


def _signs(signs: Sequence[Sign]) -> str:
    return f"`{''.join(sign.text for sign in signs)}`" if signs else "–"


def _table(table: Table, level: int) -> Iterator[str]:
    if table.title:
        yield f"{'#' * level} {plain(table.title)}"
    rule = ["--:" if column.kind == "number" else ":--" for column in table.columns]
    rows = [[_cell(cell) for cell in row] for row in table.rows]
    shown = "\n".join(map(_row, ([plain(column.title) for column in table.columns], rule, *rows)))
    folded = f"<details><summary>{plain(table.folded)}</summary>\n\n{shown}\n\n</details>"
    yield folded if table.folded else shown
    left = (table.total or len(table.rows)) - len(table.rows)
    if left > 0:
        yield plain(f"And {left} more; {table.rest}.")
    if table.caption:
        yield plain(table.caption)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell | str) -> str:
    cell = as_cell(cell)
    text = plain(cell.text)
    if cell.href:
        text = f"[{text}]({cell.href})"
    if cell.strong:
        text = f"**{text}**"
    if cell.badge and cell.tone:
        text = f"{SIGNS[cell.tone]} {text}"
    return f"{text} ({plain(cell.note)})" if cell.note else text


def _entry(entry: Entry, level: int) -> str:
    sign = f"{SIGNS[entry.mark.tone]} " if entry.mark.tone else ""
    said = [f"{'#' * level} {sign}{plain(entry.title)}: {plain(entry.mark.text)}", plain(entry.text)]
    items = [*map(plain, entry.notes), *map(_cell, entry.items)]
    said.append("\n".join(f"- {item}" for item in items))
    said.append(_code(entry.code) if entry.code else "")
    return "\n\n".join(filter(None, said))


def _code(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text.rstrip()}\n{fence}"
