"""A document is plain data for programs as well."""

from __future__ import annotations

import json
from functools import partial

from proctor.model.document import (
    Cell,
    Chart,
    Column,
    Document,
    Facts,
    Section,
    Table,
    as_cell,
    filled,
    interval,
    number,
    outcome,
    to_mapping,
)


def drawn(*, rows: object, level: float) -> str:
    return f"{rows} {level}"


def test_a_document_becomes_json_with_its_numbers_and_the_data_of_its_charts():
    table = Table(
        columns=(Column("point"), Column("value", "number"), Column("interval", "whole"), Column("verdict")),
        rows=(("a", number("0 s", 0.0), interval("1 – 2", 1.0, float("inf")), outcome("same", "good")),),
    )
    chart = Chart(title="c", draw=partial(drawn, rows=[Cell(text="x", value=2.0)], level=0.95))
    document = Document(
        kind="ab", title="t", headline="h", sections=(Section(title="s", blocks=(table, chart)),)
    )
    found = json.loads(json.dumps(to_mapping(document), allow_nan=False))
    assert found["schema_version"] == 1
    shown, picture = found["sections"][0]["blocks"]
    assert shown["type"] == "table"
    assert shown["rows"][0][0] == "a"
    assert shown["rows"][0][1] == {"text": "0 s", "value": 0.0}
    assert shown["rows"][0][2] == {"text": "1 – 2", "low": 1.0, "high": None}
    assert shown["rows"][0][3] == {"text": "same", "tone": "good", "badge": True}
    assert picture["draw"] == {
        "chart": "drawn",
        "data": {"rows": [{"text": "x", "value": 2.0}], "level": 0.95},
    }


def test_sections_without_content_are_left_out():
    full = Section(blocks=(Facts(pairs=(("a", "b"),)),))
    assert filled([Section(title="empty"), full]) == (full,)


def test_a_text_is_a_cell():
    assert as_cell("x") == Cell(text="x")
    assert as_cell(Cell(text="y")).text == "y"
