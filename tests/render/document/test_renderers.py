"""One document in every form: nothing that one form shows is missing in another."""

from __future__ import annotations

from functools import partial

import pytest

from proctor.model.document import (
    Cell,
    Chart,
    Code,
    Column,
    Document,
    Entries,
    Entry,
    Facts,
    Listed,
    Section,
    Table,
    Text,
    interval,
    number,
    outcome,
    to_mapping,
)
from proctor.render.document.html import html, sections, write
from proctor.render.document.markdown import markdown
from proctor.render.document.terminal import clean, lines
from proctor.render.layout import width

ROW = (
    "sorting(size=100, order=random)",
    number("1.234 ms", 0.001234),
    interval("1.1 – 1.3 ms", 0.0011, 0.0013),
)


def drawn(*, level: float) -> str:
    return f"<svg>{level}</svg>"


def document() -> Document:
    table = Table(
        columns=(Column("point", "prose"), Column("median", "number"), Column("95 %", "whole", note="of it")),
        rows=(ROW, ("b", Cell(text="–", tone="warn"), "–")),
        title="Every point",
        caption="read it so",
        folded="2 points",
        brief=1,
        total=5,
    )  # fmt: skip
    chart = Chart(title="Picture", draw=partial(drawn, level=0.5), caption="a picture", text=("line: ▁▂▃",))
    entry = Entry(
        title="rule one",
        mark=outcome("fails", "bad"),
        text="it is too slow",
        notes=("n 5",),
        items=(Cell(text="trial 3", href="trials/3/result.json", note="failed"), "another"),
        code="assert x",
        name="one",
    )
    return Document(
        kind="gate",
        title="Gate of <b>x</b>",
        headline="it is slower, 5 % (2 – 8 %)",
        verdict="regression",
        tone="bad",
        about=(("run", Cell(text="run-1", code=True)), ("compared with", "run-0")),
        warnings=("two @machines",),
        folder="data/runs/x",
        sections=(
            Section(blocks=(Facts(pairs=(("ratio", number("1.05", 1.05, strong=True)),), tiles=True),)),
            Section(title="Points", blocks=(table, chart), note="see --json", name="points"),
            Section(
                title="Rules",
                blocks=(
                    Entries(entries=(entry, entry, entry)),
                    Text(text="said"),
                    Text(text="aside", quiet=True),
                    Listed(items=("item", Cell(text="file", href="a b.html"))),
                    Code(text="x = ```1```", title="source"),
                ),
            ),
        ),
        links=(Cell(text="the other page", href="other.html"),),
        footer="the foot",
    )


EVERYWHERE = [
    "it is slower",
    "regression",
    "run-1",
    "run-0",
    "machines",
    "ratio",
    "1.05",
    "Points",
    "sorting",
    "1.234",
    "1.1",
    "read it so",
    "Rules",
    "rule one",
    "fails",
    "it is too slow",
    "n 5",
    "trial 3",
    "trials/3/result.json",
    "another",
    "assert x",
    "said",
    "aside",
    "item",
    "x = ```1```",
    "the other page",
    "other.html",
]


@pytest.mark.parametrize("said", EVERYWHERE)
def test_every_form_has_every_fact(said):
    terminal = "\n".join(line.text for line in lines(document(), None))
    page = html(document())
    shown = [page, markdown(document())]
    if said != "regression":  # a headline says the verdict itself; on a page there is a badge as well
        shown.append(terminal)
    for text in shown:
        assert said in text.replace("\u00a0", " ").replace("\u2060", "").replace("\\_", "_")


@pytest.mark.parametrize("room", [40, 60, 80, 120])
def test_lines_fit_the_terminal_and_numbers_stay_whole(room):
    shown = list(lines(document(), room))
    assert all(width(line.text) <= room for line in shown if "/" not in line.text)
    assert any("1.234 ms" in line.text for line in shown)
    assert any("1.1 – 1.3 ms" in line.text for line in shown)


def test_the_terminal_shows_the_first_rows_and_says_how_many_are_left():
    shown = [line.text for line in lines(document(), 80)]
    assert "and 4 more; --json lists all of them" in shown
    assert "and 3 more" in html(document()).replace("And", "and")
    assert "line: ▁▂▃" in shown


def test_a_link_is_a_path_in_a_terminal():
    assert any("data/runs/x/trials/3/result.json" in line.text for line in lines(document(), None))
    assert '<a href="trials/3/result.json">' in html(document())
    assert '<a href="a%20b.html">' in html(document())
    assert "[trial 3](trials/3/result.json)" in markdown(document())


def test_nothing_that_strangers_wrote_acts():
    assert "<b>x</b>" not in html(document())
    assert "<b>x</b>" not in markdown(document())
    assert "@machines" not in markdown(document())
    assert clean("a\x1b[31m\u202fb") == "a�[31m b"


def test_a_page_is_one_file_and_its_outcomes_have_signs(tmp_path):
    write(document(), tmp_path / "folder" / "page.html")
    page = (tmp_path / "folder" / "page.html").read_text()
    assert "<script" not in page
    assert "http" not in page.partition("<body>")[2]
    assert '<span class="badge bad"><i aria-hidden=true>✗</i>regression</span>' in page
    assert "<svg>0.5</svg>" in page
    assert page.count("<article") == 3
    assert "<details><summary>2 points</summary>" in page
    assert "<article" not in sections(document().sections[:1])


def test_many_warnings_are_counted_on_a_page():
    many = Document(kind="x", title="t", headline="h", warnings=tuple(f"warning {at}" for at in range(30)))
    assert "and 10 more" in html(many)
    assert "warning 29" in markdown(many)


def test_a_comment_is_cut_between_its_parts_and_says_where_the_rest_is():
    whole = markdown(document())
    short = markdown(document(), most=len(whole) // 2, rest="the rest is elsewhere")
    assert len(short) <= len(whole) // 2
    assert short.endswith("the rest is elsewhere\n")
    assert whole.startswith(short.removesuffix("the rest is elsewhere\n"))
    assert markdown(document(), most=len(whole), rest="x") == whole


def test_a_long_table_is_folded_in_markdown_too():
    assert "<details><summary>2 points</summary>\n\n| point" in markdown(document())


def test_a_chart_that_is_gathered_late_is_drawn_and_written_the_same():
    late = Chart(title="Picture", draw=lambda: partial(drawn, level=0.5))
    whole = Document(kind="x", title="t", headline="h", sections=(Section(blocks=(late,)),))
    assert "<svg>0.5</svg>" in html(whole)
    (chart,) = to_mapping(whole)["sections"][0]["blocks"]
    assert chart["draw"] == {"chart": "drawn", "data": {"level": 0.5}}
