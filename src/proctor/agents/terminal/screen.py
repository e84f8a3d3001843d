"""What a person would see of a terminal's output: escape sequences are obeyed, and the text is left.

Ordinary output is a growing list of lines without a width. A full-screen program has a page of a fixed size.
"""

from __future__ import annotations

import re

COLUMNS, ROWS = 160, 40
_TOKEN = re.compile(
    r"""\x1b\[(?P<values>[0-?]*)[ -/]*(?P<final>[@-~])
    | \x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|\Z)
    | \x1b[()*+\-.][0-9A-Za-z]
    | \x1b(?P<escape>[0-~])
    | (?P<control>[\x00-\x1f\x7f])
    | (?P<plain>[^\x00-\x1f\x7f]+)""",
    re.VERBOSE,
)
_FULL_SCREEN = {"?47", "?1047", "?1049"}
_TAB = 8


class Screen:
    """A terminal that only looks."""

    def __init__(self) -> None:
        self.full = False
        """Whether a full-screen program has the page."""
        self._lines = [""]
        self._row = self._column = 0
        self._behind: tuple[list[str], int, int] = ([""], 0, 0)
        """What a full-screen program covers."""
        self._saved = (0, 0)
        self._region = (0, ROWS - 1)

    def text(self) -> str:
        """What is to be seen, without empty lines around it."""
        return "\n".join(line.rstrip() for line in self._lines).strip("\n")

    def feed(self, text: str) -> None:
        """Obey a piece of output."""
        for token in _TOKEN.finditer(text):
            if plain := token["plain"]:
                self._print(plain)
            elif control := token["control"]:
                self._control(control)
            elif final := token["final"]:
                self._sequence(final, token["values"])
            elif escape := token["escape"]:
                self._escape(escape)

    # Text

    def _print(self, text: str) -> None:
        while text:
            room = COLUMNS - self._column if self.full else len(text)
            if room <= 0:
                self._column, room = 0, COLUMNS
                self._down()
            part, text = text[:room], text[room:]
            line = self._lines[self._row]
            end = self._column + len(part)
            self._lines[self._row] = line[: self._column].ljust(self._column) + part + line[end:]
            self._column = end

    def _control(self, control: str) -> None:
        match control:
            case "\n" | "\v" | "\f":
                self._down()
            case "\r":
                self._column = 0
            case "\b":
                self._column = max(0, self._column - 1)
            case "\t":
                self._column = (self._column // _TAB + 1) * _TAB

    def _escape(self, escape: str) -> None:
        match escape:
            case "7":
                self._saved = self._row, self._column
            case "8":
                self._go(*self._saved)
            case "D" | "E":
                self._column = 0 if escape == "E" else self._column
                self._down()
            case "M":
                self._up()
            case "c":
                self._page(full=False)
                self._erase(0, len(self._lines))
                self._go(self._top, 0)

    # Lines

    @property
    def _top(self) -> int:
        return 0 if self.full else max(0, len(self._lines) - ROWS)

    def _go(self, row: int, column: int) -> None:
        last = self._top + ROWS - 1
        self._row, self._column = min(max(row, self._top), last), max(column, 0)
        self._lines += [""] * (self._row + 1 - len(self._lines))

    def _down(self) -> None:
        top, bottom = self._region
        if self.full and self._row == bottom:
            self._scroll(top, 1)
        elif not self.full or self._row < ROWS - 1:
            self._row += 1
            if self._row == len(self._lines):
                self._lines.append("")

    def _up(self) -> None:
        if self.full and self._row == self._region[0]:
            self._scroll(self._row, -1)
        else:
            self._go(self._row - 1, self._column)

    def _scroll(self, first: int, count: int) -> None:
        """Move the lines from `first` to the end of the region up, or down."""
        last = self._region[1] if self.full else self._top + ROWS - 1
        self._lines += [""] * (last + 1 - len(self._lines))
        size = last - first + 1
        blank = [""] * min(abs(count), max(size, 0))
        kept = self._lines[first : last + 1]
        moved = kept[len(blank) :] + blank if count > 0 else blank + kept[: size - len(blank)]
        self._lines[first : last + 1] = moved

    def _erase(self, first: int, end: int) -> None:
        for row in range(first, min(end, len(self._lines))):
            self._lines[row] = ""

    def _page(self, *, full: bool) -> None:
        if full and not self.full:
            self._behind = self._lines, self._row, self._column
            self._lines, self._row, self._column = [""] * ROWS, 0, 0
        elif self.full and not full:
            self._lines, self._row, self._column = self._behind
        self.full, self._region = full, (0, ROWS - 1)

    # Sequences

    def _sequence(self, final: str, values: str) -> None:
        if final in "hl" and _FULL_SCREEN & {f"?{each}" for each in values.removeprefix("?").split(";")}:
            self._page(full=final == "h")
            return
        numbers = [int(each) if each.isdigit() else 0 for each in values.split(";")]
        first = min(numbers[0], 10_000)
        if final in "ABCDEFG`d":
            self._move(final, max(1, first))
        elif final in "Hf":
            column = numbers[1] if len(numbers) > 1 else 1
            self._go(self._top + max(1, first) - 1, min(max(1, column), 10_000) - 1)
        elif final == "r" and self.full:
            last = numbers[1] if len(numbers) > 1 else ROWS
            self._region = max(1, first) - 1, min(last or ROWS, ROWS) - 1
            self._go(0, 0)
        elif final in "su":
            self._escape("7" if final == "s" else "8")
        elif final in "JKLMPX@ST":
            self._edit(final, first)

    def _move(self, final: str, count: int) -> None:
        row, column = self._row, self._column
        match final:
            case "A" | "F":
                row -= count
            case "B" | "E":
                row += count
            case "C" | "D":
                column += count if final == "C" else -count
            case "G" | "`":
                column = count - 1
            case "d":
                row = self._top + count - 1
        self._go(row, 0 if final in "EF" else column)

    def _edit(self, final: str, first: int) -> None:
        line, at, count = self._lines[self._row], self._column, max(1, first)
        match final:
            case "J":
                self._erase(self._row + 1 if first == 0 else self._top, self._row if first == 1 else 1 << 30)
                self._edit("K", 2 if first > 1 else first)
            case "K":
                rest = line[at + 1 :] if first == 1 else line[:at]
                self._lines[self._row] = "" if first > 1 else " " * (at + 1) + rest if first else rest
            case "L" | "M":
                self._scroll(self._row, -count if final == "L" else count)
            case "S" | "T":
                self._scroll(self._region[0] if self.full else self._top, count if final == "S" else -count)
            case "P":
                self._lines[self._row] = line[:at] + line[at + count :]
            case "@":
                self._lines[self._row] = line[:at] + " " * count + line[at:]
            case "X":
                self._lines[self._row] = line[:at] + " " * count + line[at + count :]
