"""Tables fit their terminal: text shrinks, spare columns go, every number stays whole."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.cli.table import line_width, print_table, say
from proctor.render.layout import Columns, Layout, broken, lay_out, shorten, width, wrapped

HEADERS = ["point", "verdict", "median", "95 % interval", "mean"]
ROWS = [
    ["pragma_profile(profile=balanced, records=2000)", "worse", "1.234 ms", "1.100 – 1.300 ms", "1.25 ms"],
    ["pragma_profile(profile=safety, records=2000)", "no worse", "41.0 ms", "37.1 – 63.6 ms", "50.3 ms"],
]
NUMBERS = [row[at] for row in ROWS for at in (2, 3, 4)]


def lines(layout: Layout) -> list[str]:
    return [line for block in layout.blocks for line in (*block.header, *block.body)]


def test_a_table_that_fits_is_left_alone():
    (block,) = lay_out(HEADERS, ROWS, Columns(right=(2, 3, 4)), 200).blocks
    assert ROWS[0][0] in block.body[0]
    assert lay_out(HEADERS, ROWS, Columns(right=(2, 3, 4)), None).blocks == (block,)


@pytest.mark.parametrize("room", range(40, 120, 4))
def test_text_shrinks_and_every_number_stays(room):
    layout = lay_out(HEADERS, ROWS, Columns(right=(2, 3, 4)), room)
    shown = lines(layout)
    assert max(map(width, shown)) <= room
    for number in NUMBERS:
        assert any(number in line for line in shown), number
    assert layout.dropped == ()


def test_spare_columns_go_from_the_last_one_and_only_if_needed():
    columns = Columns(right=(2, 4), spare=(1, 3))
    assert lay_out(HEADERS, ROWS, columns, 90).dropped == ()
    assert lay_out(HEADERS, ROWS, columns, 60).dropped == ("95 % interval",)
    assert lay_out(HEADERS, ROWS, columns, 42).dropped == ("verdict", "95 % interval")


def test_what_does_not_fit_otherwise_comes_below_with_the_label_again():
    layout = lay_out(HEADERS, ROWS, Columns(right=(2, 3, 4), whole=(1,)), 40)
    assert len(layout.blocks) > 1
    assert all(block.header[-1].startswith("point") for block in layout.blocks)
    assert max(map(width, lines(layout))) <= 40


def test_a_long_header_takes_several_lines_before_anything_is_cut():
    headers = ["agent", "errors as zero – best case"]
    (block,) = lay_out(headers, [["an-agent-with-a-name", "40–60 %"]], Columns(right=(1,)), 40).blocks
    assert len(block.header) == 2
    assert (
        block.body == ("an-agent-with-a-name  40–60 %".replace("  ", " " * 9),) or "40–60 %" in block.body[0]
    )
    assert "an-agent-with-a-name" in block.body[0]


def test_prose_is_continued_and_not_cut():
    text = "not found: revisions in `proctor ab` and the record of version control"
    (block,) = lay_out(["what", "found"], [["git", text]], Columns(wrap=(1,)), 40).blocks
    assert len(block.body) > 1
    assert "…" not in "".join(block.body)
    assert " ".join(" ".join(block.body).split()).endswith(text)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=0x3FF), max_size=60), st.integers(2, 40))
def test_shortened_text_fits(text, room):
    assert width(shorten(text, room)) <= max(room, 1)


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=6), st.integers(2, 40))
def test_no_number_is_left_in_part(numbers, room):
    text = ", ".join(f"size={number}" for number in numbers)
    whole = {str(number) for number in numbers}
    assert set(re.findall(r"\d+", shorten(text, room))) <= whole


def test_wide_characters_count_twice():
    assert width("数据") == 4
    assert width("e\u0301") == 1
    assert width(shorten("数据" * 20, 11)) <= 11


@given(st.text(st.sampled_from("ab 1数"), max_size=80), st.integers(4, 30))
def test_wrapped_text_loses_nothing_but_spaces(text, room):
    found = wrapped(text, room)
    assert all(width(line) <= room for line in found)
    assert "".join(found).replace(" ", "") == text.replace(" ", "")


def test_a_sentence_keeps_its_columns_and_a_path_its_line():
    text = "status      done by somebody somewhere /a/very/long/path/that/cannot/be/broken/anywhere"
    assert broken(text, 40, " " * 12) == [
        "status      done by somebody somewhere",
        " " * 12 + "/a/very/long/path/that/cannot/be/broken/anywhere",
    ]
    assert broken("short", 40) == ["short"]
    assert broken("long" * 30, None) == ["long" * 30]


def test_without_a_terminal_a_line_is_as_wide_as_it_is_unless_columns_says(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert line_width() is None
    print_table(HEADERS, ROWS, right=(2, 3, 4))
    assert ROWS[0][0] in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "60")
    print_table(HEADERS, ROWS, right=(2, 4), spare=(3,), more="--json")
    say("a sentence that is much longer than sixty columns and has to be continued on a second line")
    shown = capsys.readouterr().out
    assert max(map(width, shown.splitlines())) <= 60
    assert "not shown: 95 % interval; --json or a wider terminal shows\nit\n" in shown
    monkeypatch.setenv("COLUMNS", "nonsense")
    assert line_width() is None


def test_labels_that_would_look_the_same_are_continued_instead_of_cut():
    rows = [["mode=a performance, load=mixed", "1.25 ms"], ["mode=a durability, load=mixed", "1.30 ms"]]
    (block,) = lay_out(["point", "mean"], rows, Columns(right=(1,)), 22).blocks
    assert "…" not in "".join(block.body)
    assert any("performance" in line for line in block.body)


def test_a_number_and_its_unit_stay_on_one_line():
    assert wrapped("from 1.35 ms to 8 %", 9) == ["from", "1.35 ms", "to 8 %"]
