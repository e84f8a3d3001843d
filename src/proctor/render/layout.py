"""Fit tables and sentences into a terminal: text shrinks, spare columns go, numbers are never cut."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

GAP = "  "
LEAST_TEXT = 12
"""A column of text, or the label, does not shrink below this."""
LEAST_PROSE = 16
"""A column that is wrapped does not become narrower than this."""
EASY = 28
"""Spare columns go before text or prose becomes narrower than this."""
_FIGURE = "0123456789.,"
_WORDS = re.compile(r"[^ \t\n]+")
_UNIT = re.compile(r"(?<=\d) (?=(?:%|pp|[nµm]?s|min|h|[kKMGT]?i?B)(?!\w))")
"""The space between a number and its unit, where no line ends."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What may be done to which column, by number. The first column is the label of its row."""

    right: Collection[int] = ()
    """Numbers, set flush right: never cut and never dropped."""
    whole: Collection[int] = ()
    """Set flush left and never cut: ids, intervals, rows of signs."""
    spare: Collection[int] = ()
    """Dropped, the last first, when the table does not fit otherwise."""
    wrap: Collection[int] = ()
    """Prose: continued on the next line instead of being cut."""

    def uncut(self, at: int) -> bool:
        """Whether the column has to be as wide as its widest cell."""
        return at in self.right or at in self.whole


@dataclass(frozen=True, slots=True)
class Block:
    """Lines of a header and of rows; a very wide table has several blocks, each with the label."""

    header: tuple[str, ...]
    body: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """A table that fits."""

    blocks: tuple[Block, ...]
    dropped: tuple[str, ...] = ()
    """Headers of the columns that are not shown."""


@dataclass(slots=True)
class _Fit:
    """A choice of columns and their widths."""

    cells: Sequence[Sequence[str]]
    columns: Columns
    shown: list[int]
    widths: dict[int, int] = field(default_factory=dict)

    def total(self) -> int:
        return sum(self.widths[at] for at in self.shown) + len(GAP) * (len(self.shown) - 1)


def lay_out(
    headers: Sequence[str], rows: Sequence[Sequence[str]], columns: Columns, room: int | None = None
) -> Layout:
    """The lines of a table. `room`: how many characters a line may have; None for as many as it needs."""
    cells = [list(headers), *map(list, rows)]
    every = list(range(len(headers)))
    shown = every
    for gone in sorted(columns.spare, reverse=True):
        if room is not None and _fit(cells, columns, shown, room, least=EASY).total() > room:
            shown = [at for at in shown if at != gone]
    fit = _fit(cells, columns, shown, room)
    if _alike(fit):
        columns = replace(columns, wrap=(*columns.wrap, 0))
        fit = _fit(cells, columns, shown, room)
    dropped = tuple(headers[at] for at in every if at not in shown)
    if room is None or fit.total() <= room:
        return Layout((_block(fit),), dropped)
    parts = _split(fit, room)
    return Layout(tuple(_block(_fit(cells, columns, part, room)) for part in parts), dropped)


def _alike(fit: _Fit) -> bool:
    """Whether labels that differ would look the same when they are cut."""
    if fit.columns.uncut(0) or 0 in fit.columns.wrap:
        return False
    labels = {row[0] for row in fit.cells[1:]}
    return len({shorten(label, fit.widths[0]) for label in labels}) < len(labels)


def _fit(
    cells: Sequence[Sequence[str]], columns: Columns, shown: list[int], room: int | None, least: int = 0
) -> _Fit:
    fit = _Fit(cells, columns, shown)
    fit.widths = {at: max(width(row[at]) for row in cells) for at in shown}
    if room is None or fit.total() <= room:
        return fit
    for at in shown:  # a header may take several lines where its cells are narrower
        fit.widths[at] = max(_longest_word(cells[0][at]), *(width(row[at]) for row in cells[1:]), 1)
    text = [at for at in shown if not columns.uncut(at) and at not in columns.wrap]
    _shrink(fit, [at for at in shown if at and at in columns.wrap], max(least, LEAST_PROSE), room)
    _shrink(fit, [0] if 0 in columns.wrap else [], max(least, LEAST_TEXT), room)
    _shrink(fit, text, max(least, LEAST_TEXT), room)
    _widen_headers(fit, room)
    return fit


def _shrink(fit: _Fit, text: Sequence[int], least: int, room: int) -> None:
    """Take from the widest first, until it fits or all are at their minimum."""
    while (over := fit.total() - room) > 0:
        widest = max(text, key=lambda at: fit.widths[at], default=None)
        if widest is None or fit.widths[widest] <= least:
            return
        others = [fit.widths[at] for at in text if fit.widths[at] < fit.widths[widest]]
        down_to = max(least, *others) if others else least
        fit.widths[widest] -= min(over, max(1, fit.widths[widest] - down_to))


def _widen_headers(fit: _Fit, room: int) -> None:
    """What is left of the room goes to headers that would need several lines."""
    for at in fit.shown:
        wanted = width(fit.cells[0][at]) - fit.widths[at]
        if wanted > 0 and fit.columns.uncut(at):
            fit.widths[at] += max(0, min(wanted, room - fit.total()))


def _split(fit: _Fit, room: int) -> list[list[int]]:
    """Columns in several blocks, each with the label in front."""
    label, *rest = fit.shown
    parts: list[list[int]] = []
    used = 0
    for at in rest:
        needed = len(GAP) + fit.widths[at]
        if not parts or used + needed > room:
            parts.append([label])
            used = fit.widths[label] if fit.columns.uncut(label) else min(fit.widths[label], LEAST_TEXT)
        parts[-1].append(at)
        used += needed
    return parts or [[label]]


def _block(fit: _Fit) -> Block:
    header, *body = fit.cells
    return Block(
        tuple(_lines(fit, header, is_header=True)),
        tuple(line for row in body for line in _lines(fit, row, is_header=False)),
    )


def _lines(fit: _Fit, row: Sequence[str], *, is_header: bool) -> list[str]:
    columns = fit.columns
    parts = {
        at: wrapped(row[at], fit.widths[at])
        if at in columns.wrap or (is_header and columns.uncut(at))
        else [shorten(row[at], fit.widths[at])]
        for at in fit.shown
    }
    height = max(len(lines) for lines in parts.values())
    found = []
    for number in range(height):
        cells = []
        for at in fit.shown:
            lines = parts[at]
            # Headers of several lines end where the first row begins.
            place = number - (height - len(lines)) if is_header else number
            text = lines[place] if 0 <= place < len(lines) else ""
            blank = " " * (fit.widths[at] - width(text))
            cells.append(blank + text if at in columns.right else text + blank)
        found.append(GAP.join(cells).rstrip())
    return found


def width(text: str) -> int:
    """How many columns a text takes in a terminal."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(each) else 1 + (east_asian_width(each) in "WF") for each in text)


def shorten(text: str, room: int) -> str:
    """The text with its middle left out where it is too long; no number is left in part."""
    if width(text) <= room:
        return text
    if room < 2:
        return "…"[:room]
    end = room // 2
    start = len(text) - (room - 1 - end)
    while end and width(text[:end]) > room // 2:
        end -= 1
    while start < len(text) and width(text[start:]) > room - 1 - room // 2:
        start += 1
    if _inside_number(text, end):
        end = len(text[:end].rstrip(_FIGURE))
    if _inside_number(text, start):
        start = len(text) - len(text[start:].lstrip(_FIGURE))
    return f"{text[:end]}…{text[start:]}"


def _inside_number(text: str, at: int) -> bool:
    """Whether a cut here would leave a part of a number."""
    if not 0 < at < len(text):
        return False
    return text[at - 1] in _FIGURE and text[at] in _FIGURE


def wrapped(text: str, room: int, *, hard: bool = True) -> list[str]:
    """The text in lines of at most this width, broken at spaces; what is between words stays as it is.

    A longer word is broken where it must, or without `hard` keeps a line of its own: a path can be copied.
    """
    lines = []
    rest = text.rstrip()
    while width(rest) > room:
        end = room
        while end > 1 and width(rest[:end]) > room:
            end -= 1
        at = _UNIT.sub("_", rest).rfind(" ", 0, end + 1)
        if not rest[: max(at, 0)].strip():
            at = end if hard else rest.find(" ", len(rest) - len(rest.lstrip()))
        if at < 0:
            break
        lines.append(rest[:at].rstrip())
        rest = rest[at:].lstrip()
    return [*lines, rest] if rest or not lines else lines


def broken(text: str, room: int | None, indent: str = "") -> list[str]:
    """The lines of a sentence. Its own margin is kept, `indent` is added to all lines but the first."""
    if room is None or width(text) <= room:
        return [text]
    again = text[: len(text) - len(text.lstrip())] + indent
    first = wrapped(text, room, hard=False)[0]
    rest = text[len(first) :].strip()
    if len(first.strip()) == 1 and rest:  # a mark is never alone on its line, however long the word after it
        word, _, rest = rest.partition(" ")
        first = f"{first} {word}"
    more = wrapped(rest, max(20, room - len(again)), hard=False) if rest else []
    return [first, *(again + line for line in more)]


def _longest_word(text: str) -> int:
    return max((width(word) for word in _WORDS.findall(text)), default=0)
