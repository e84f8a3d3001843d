from __future__ import annotations

import pytest

from proctor.agents.terminal.keys import keys_of
from proctor.agents.terminal.screen import Screen
from proctor.agents.terminal.window import Window


def shown(text: str) -> str:
    screen = Screen()
    screen.feed(text)
    return screen.text()


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\r\nb\r\n", "a\nb"),
        ("\x1b[1;31mred\x1b[0m and \x1b]0;title\x07plain", "red and plain"),
        ("10%\r50%\r100%\r\n", "100%"),
        ("abc\b\bX", "aXc"),
        ("a\tb", "a       b"),
        ("one\r\ntwo\x1b[1A\x1b[2K\rONE", "ONE\ntwo"),
        ("long line\r\x1b[4C\x1b[K", "long"),
        ("gone\x1b[2J\x1b[Hnew", "new"),
        ("abc\x1b[2D\x1b[1P", "ac"),
        ("abc\x1b[2G\x1b[2@", "a  bc"),
        ("abc\x1b[1G\x1b[2X", "  c"),
        ("abc\x1b[2G\x1b[1K", "  c"),
        ("a\r\nb\r\nc\x1b[2A\x1b[1M", "b\nc"),
        ("a\r\nb\x1b[1L", "a\n\nb"),
        ("\x1b7abc\x1b8X", "Xbc"),
        ("\x1b[sabc\x1b[uX", "Xbc"),
        ("a\x1bEb\x1bDc", "a\nb\n c"),
        ("a\r\nb\x1bMx", "ax\nb"),
        ("a\x1b[2Eb\x1b[1Fc", "a\nc\nb"),
        ("a\x1b[3dx", "a\n\n x"),
        ("a\x1bcb", "b"),
        ("\x1b(Bq\x1b[?25l", "q"),
        ("unfinished \x1b[12", "unfinished 12"),
        ("x" * 400, "x" * 400),
    ],
)
def test_a_screen_shows_what_a_person_would_see(text, seen):
    assert shown(text) == seen


def test_a_full_screen_program_has_a_page_of_a_fixed_size_and_gives_back_what_was_behind():
    screen = Screen()
    screen.feed("before\r\n\x1b[?1049h" + "\r\n".join(str(n) for n in range(100)))
    assert screen.full
    assert screen.text().split("\n") == [str(n) for n in range(60, 100)]
    screen.feed("\x1b[2;4r\x1b[4;1H\n\x1b[2;1H\x1bM\x1b[1;1H" + "w" * 170)
    assert screen.text().startswith("w" * 160 + "\n" + "w" * 10)
    screen.feed("\x1b[1S\x1b[1T\x1b[?1049lafter")
    assert not screen.full
    assert screen.text() == "before\nafter"


def test_hostile_numbers_cost_nothing():
    assert len(shown("\x1b[999999999B\x1b[999999999;999999999Hx\x1b[99999999L")) < 20_000


def test_keys_are_text_with_names():
    assert keys_of(":wq<Enter>") == b":wq\r"
    assert keys_of("a\nb") == b"a\rb"
    assert keys_of("<C-c><C-D><Esc><Up><M-x><F1><F5>") == b"\x03\x04\x1b\x1b[A\x1bx\x1bOP\x1b[15~"
    assert keys_of("<div> & <unknown>") == b"<div> & <unknown>"


def test_a_window_counts_what_it_leaves_out():
    import re

    window, none = Window(), re.compile(b"\x1e.\x1e")
    window.add(b"a" * 20_000)
    text = window.shown(Screen(), none)
    assert text.startswith("aaa")
    assert "… 4000 characters of the output left out …" in text
    window = Window()
    for n in range(40_000):
        window.add(b"%d\n" % n)
    text = window.shown(Screen(), none)
    assert text.startswith("0\n")
    assert text.rstrip().endswith("39999")
    assert "bytes of the output left out" in text
    window = Window()
    window.add(b"\x1b[?1049h" + b"x" * 200_000 + b"\x1b[2J\x1b[Hpage")
    assert window.shown(Screen(), none) == "page"
