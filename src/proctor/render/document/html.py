"""A document as a page: a single file without scripts or network access, light and dark, also for phones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from proctor.model.document import (
    MARKS,
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
    Look,
    Matrix,
    Section,
    Sign,
    Table,
    Text,
    as_cell,
)
from proctor.render.charts.svg import CHART_CSS
from proctor.runfolder.files import make_folder, write_atomic

MOST_WARNINGS = 20
MANY_SIGNS = 20
"""More signs in a field of a matrix are drawn smaller."""
CSS = "".join((Path(__file__).parent / name).read_text() for name in ("tokens.css", "page.css")) + CHART_CSS
# No script may run and nothing may be fetched, whatever ends up in the page.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_LOOKS: dict[Look, str] = {"pass": "p", "part": "h", "fail": "f", "own": "o", "error": "x", "none": "w"}
_UNIT = re.compile(r"(?<=\d) (?=(?:[nµm]?s|min|h|pp|[KMG]?i?B)\b|%|–)")
_WHOLE = re.compile(r"(?<![\w-])(?:--[a-z][a-z-]*|\d{4}-\d\d-\d\d)(?![\w-])")
"""Options and dates, which browsers would break at their hyphens."""
_RANGE = re.compile(r"(?<=\d)–(?=\d)")
BESIDE = 2
"""With more entries than this there are two columns of them on a wide screen."""


def write(document: Document, path: Path) -> None:
    """Write the page, and the folder that it is in."""
    make_folder(path.parent)
    write_atomic(path, html(document))


def html(document: Document, *, script: str = "") -> str:
    """The whole page. `script`: the only one that may run in it; usually there is none."""
    policy = f"{POLICY}; script-src '{_digest(script)}'" if script else POLICY
    kept = "without network access" if script else "without scripts or network access"
    body = _head(document) + _notice(document) + sections(document.sections) + _links(document)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(document.title)} · Proctor</title><style>{CSS}</style></head><body><main>{body}"
        f"<footer>{escape(document.footer)} A single file {kept}.</footer></main>"
        + (f"<script>{script}</script>" if script else "")
        + "</body></html>\n"
    )


def _digest(script: str) -> str:
    from base64 import b64encode
    from hashlib import sha256

    return f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}"


def sections(parts: tuple[Section, ...]) -> str:
    """Some sections, for a page that has others too."""
    return "".join(map(_section, parts))


def prose(text: str) -> str:
    """Text of others, escaped, with numbers kept on one line with their units."""
    joined = _UNIT.sub("\u00a0", escape(text))
    joined = _WHOLE.sub(r"<span class=nw>\g<0></span>", joined)
    return _RANGE.sub("\u2060–\u2060", joined.replace("– ", "–\u2060\u00a0"))


def _head(document: Document) -> str:
    mark = _cell(Cell(text=document.verdict, tone=document.tone, badge=True)) if document.verdict else ""
    about = "".join(f"<dt>{escape(name)}</dt><dd>{_cell(value)}</dd>" for name, value in document.about)
    return (
        f"<header><p class=kicker>Proctor {escape(document.kind)}</p>"
        f"<h1>{escape(document.title)} {mark}</h1><p class=lead>{prose(document.headline)}</p>"
        + (f"<dl class=kv>{about}</dl>" if about else "")
        + "</header>"
    )


def _notice(document: Document) -> str:
    if not document.warnings:
        return ""
    said = list(document.warnings[:MOST_WARNINGS])
    if len(document.warnings) > MOST_WARNINGS:
        said.append(f"and {len(document.warnings) - MOST_WARNINGS} more")
    items = "".join(f"<li>{prose(each)}</li>" for each in said)
    title = "Before you quote these numbers"
    return f'<aside class="notice" aria-label="Warnings"><h2>{title}</h2><ul>{items}</ul></aside>'


def _links(document: Document) -> str:
    inside = " · ".join(_cell(link) for link in document.links)
    return f"<nav class=also aria-label='Other pages'>{inside}</nav>" if inside else ""


def _section(section: Section) -> str:
    name = f' id="{escape(section.name)}"' if section.name else ""
    heading = f"<h2>{escape(section.title)}</h2>" if section.title else ""
    note = f"<p class=note>{prose(section.note)}</p>" if section.note else ""
    return f"<section{name}>{heading}{''.join(map(_block, section.blocks))}{note}</section>"


def _block(block: Block) -> str:
    match block:
        case Table():
            shown = _table(block)
        case Chart():
            shown = _figure(block)
        case Facts():
            shown = _facts(block)
        case Text():
            shown = f"<p class={'note' if block.quiet else 'said'}>{prose(block.text)}</p>"
        case Listed():
            shown = _listed(block.items)
        case Code():
            shown = _folded(f"<pre>{escape(block.text)}</pre>", block.title)
        case Matrix():
            shown = _matrix(block)
        case Fold():
            shown = _folded("".join(map(_block, block.blocks)), block.title)
        case Entries():
            beside = " two" if len(block.entries) > BESIDE else ""
            shown = f'<div class="entries{beside}">{"".join(map(_entry, block.entries))}</div>'
    return shown


def _listed(items: Sequence[Cell | str]) -> str:
    inside = "".join(f"<li>{_cell(item)}</li>" for item in items)
    return f"<ul class=listed>{inside}</ul>" if inside else ""


def _table(table: Table) -> str:
    kinds = [_css(column.kind) for column in table.columns]
    head = "".join(
        f"<th{css}>{escape(column.title)}<small>{escape(column.note)}</small></th>"
        for column, css in zip(table.columns, kinds, strict=True)
    )
    body = "".join(
        f"<tr>{''.join(f'<td{css}>{_cell(cell)}</td>' for cell, css in zip(row, kinds, strict=True))}</tr>"
        for row in table.rows
    )
    heading = f"<h3>{escape(table.title)}</h3>" if table.title else ""
    shown = (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>' + f"<tbody>{body}</tbody></table></div>"
    )
    left = (table.total or len(table.rows)) - len(table.rows)
    said = [*([f"And {left} more; {table.rest}."] if left > 0 else []), table.caption]
    notes = "".join(f"<p class=note>{prose(each)}</p>" for each in said if each)
    return heading + _folded(shown, table.folded) + notes


def _matrix(matrix: Matrix) -> str:
    head = "".join(
        f"<th>{escape(column.title)}<small>{prose(column.note)}</small></th>" for column in matrix.columns
    )
    body = "".join(
        f"<tr><th scope=row>{escape(label)}</th>{''.join(_signs(cell, matrix) for cell in cells)}</tr>"
        for label, cells in matrix.rows
    )
    most = max((len(cell) for _, cells in matrix.rows for cell in cells), default=0)
    size = " small" if most > MANY_SIGNS else ""
    legend = "".join(f"<li>{_sign(sign)}{escape(meaning)}</li>" for sign, meaning in matrix.legend)
    left = (matrix.total or len(matrix.rows)) - len(matrix.rows)
    said = [matrix.caption, *([f"And {left} more; {matrix.rest}."] if left > 0 else [])]
    return (
        f'<div class="scroll"><table class="mx{size}"><thead><tr><td></td>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div><ul class=legend>{legend}</ul>"
        + "".join(f"<p class=note>{prose(each)}</p>" for each in said if each)
    )


def _signs(signs: Sequence[Sign], matrix: Matrix) -> str:
    scored = sum(sign.look in {"pass", "part", "fail", "own"} for sign in signs)
    passed = sum(sign.look == "pass" for sign in signs)
    count = f"<small>{passed}/{scored}</small>" if matrix.counted and len(signs) > 1 else ""
    return f"<td><div class=cs>{''.join(map(_sign, signs))}{count}</div></td>"


def _sign(sign: Sign) -> str:
    level = f' style="--v:{100 * sign.level:.0f}"' if sign.level is not None else ""
    name = f' title="{escape(sign.tooltip)}"' if sign.tooltip else ""
    inside = f'class="c {_LOOKS[sign.look]}"{name}{level}>{escape(sign.text)}'
    if not sign.href:
        return f"<span {inside}</span>"
    return f'<a href="{escape(quote(sign.href, safe="/#.:?=&%"))}" {inside}</a>'


def _css(kind: str) -> str:
    return {"number": ' class="n"', "whole": ' class="nw"', "prose": ' class="p"'}.get(kind, "")


def _cell(cell: Cell | str) -> str:
    cell = as_cell(cell)
    text = prose(cell.text)
    if cell.code:
        text = f"<code>{text}</code>"
    if cell.href:
        text = f'<a href="{escape(quote(cell.href, safe="/#.:?=&%"))}">{text}</a>'
    if cell.badge:
        sign = f"<i aria-hidden=true>{MARKS[cell.tone]}</i>" if cell.tone else ""
        text = f'<span class="badge {cell.tone}">{sign}{text}</span>'
    elif cell.tone:
        text = f"<span class=t-{cell.tone}><i aria-hidden=true>{MARKS[cell.tone]}</i>{text}</span>"
    if cell.strong:
        text = f"<b>{text}</b>"
    if cell.share is not None:
        text += f' <span class=bar aria-hidden=true><i style="width:{cell.share:.0%}"></i></span>'
    return f"{text} <small>{prose(cell.note)}</small>" if cell.note else text


def _figure(chart: Chart) -> str:
    caption = f"<figcaption>{prose(chart.caption)}</figcaption>" if chart.caption else ""
    heading = f"<h3>{escape(chart.title)}</h3>" if chart.title else ""
    return f'<figure>{heading}<div class="scroll">{chart.call()}</div>{caption}</figure>'


def _facts(facts: Facts) -> str:
    inside = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{_cell(value)}</dd></div>" for name, value in facts.pairs
    )
    return f"<dl class={'tiles' if facts.tiles else 'facts'}>{inside}</dl>"


def _entry(entry: Entry) -> str:
    name = f' id="{escape(entry.name)}"' if entry.name else ""
    said = "".join(f"<p class=note>{prose(each)}</p>" for each in entry.notes)
    return (
        f"<article class=entry{name}><header><h3>{prose(entry.title)}</h3>{_cell(entry.mark)}</header>"
        f"{f'<p>{prose(entry.text)}</p>' if entry.text else ''}{said}{_listed(entry.items)}"
        + (_folded(f"<pre>{escape(entry.code)}</pre>", entry.folded) if entry.code else "")
        + "</article>"
    )


def _folded(body: str, title: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{body}</details>" if title else body
