"""Tags of the pages that are not documents yet: those of gate and compare."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from proctor.model.document import Document
from proctor.render.document.html import html


def shell(title: str, body: str, footer: str) -> str:
    """A whole page around its sections; `title` and `footer` are plain text."""
    page = html(Document(kind="", title=title, headline="", footer=footer))
    start, end = page.index("<main>") + len("<main>"), page.index("<footer>")
    return page[:start] + body + page[end:]


def section(title: str, body: str, *, name: str) -> str:
    """A part of the page under a heading."""
    return f'<section id="{escape(name)}"><h2>{escape(title)}</h2>{body}</section>' if body else ""


def figure(chart: str, title: str, caption: str) -> str:
    """A chart with what it shows above and how to read it below."""
    heading = f"<h3>{escape(title)}</h3>" if title else ""
    return (
        f'<figure>{heading}<div class="scroll">{chart}</div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, numeric: Sequence[int] = ()) -> str:
    """A table of cells that are HTML already; `numeric` columns are set flush right."""
    number = ' class="n"'
    head = "".join(
        f"<th{number if at in numeric else ''}>{escape(name)}</th>" for at, name in enumerate(headers)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{number if at in numeric else ''}>{cell}</td>" for at, cell in enumerate(row))
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def details(title: str, body: str) -> str:
    """A part that is folded away."""
    return f"<details><summary>{title}</summary>{body}</details>"
