from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proctor.runfolder.read import RunData
from proctor.tables import columns
from proctor.tables.columns import FIXED, KINDS, attempt_row, iteration_rows, table, trial_row
from proctor.tables.files import cell, harmless, write_csv
from proctor.tables.source import _of


@pytest.mark.parametrize("kind", KINDS)
def test_the_fixed_columns_come_first_whatever_was_run(any_run, kind):
    names = [column.name for column in _of(any_run).table(kind).columns]
    assert tuple(names[: len(FIXED[kind])]) == FIXED[kind]
    assert len(names) == len(set(names))
    groups = [columns._group(name) for name in names[len(FIXED[kind]) :]]
    assert groups == sorted(groups)


def test_every_attempt_has_a_row_and_one_of_each_trial_counts(runs):
    data = runs.failures()
    made = _of(data).table("attempts")
    names = [column.name for column in made.columns]
    rows = [dict(zip(names, row, strict=True)) for row in made.rows()]
    assert len(rows) == 6
    assert sum(row["counts"] for row in rows) == 5
    lost = next(row for row in rows if row["outcome"] == "worker_lost")
    assert lost["failure.message"] == "no heartbeat"
    assert lost["blame"] == "infrastructure"
    assert lost["params.profile"] == "safety"


def test_a_trial_without_a_result_has_a_row(runs):
    made = _of(runs.failures()).table("trials")
    rows = list(made.rows())
    at = [column.name for column in made.columns].index("outcome")
    assert [row[at] for row in rows][-2:] == ["failed", None]


def test_iterations_carry_the_parameters_they_were_measured_at(runs):
    made = _of(runs.lines((10, 100))).table("iterations")
    names = [column.name for column in made.columns]
    rows = [dict(zip(names, row, strict=True)) for row in made.rows()]
    assert len(rows) == 60
    assert {row["params.size"] for row in rows} == {10, 100}
    assert rows[31]["iteration"] == 1
    assert rows[31]["metrics.duration_s"] > 0


def test_a_rows_own_number_of_the_iteration_wins(runs):
    data = runs.single(3)
    record = data.trials[0].counted
    rows = tuple({"iteration": 10 + at} for at in range(3))
    row = next(iter(data.rows()))
    found = list(iteration_rows(data.info, replace(row, record=replace(record, iterations=rows))))
    assert [each["iteration"] for each in found] == [10, 11, 12]
    assert "metrics.iteration" not in found[0]


def test_a_name_with_a_dot_beside_a_mapping_loses_neither(runs):
    data = runs.single(3)
    row = next(iter(data.rows()))
    trial = replace(row.trial, params={"a": {"b": 1}, "a.b": 2, "list": [1, 2], "empty": {}})
    found = attempt_row(data.info, replace(row, trial=trial))
    assert found["params.a.b"] == 1
    assert found["params.a.b'"] == 2
    assert found["params.list"] == "[1,2]"


def typed(*values):
    made = table("trials", lambda: [{"params.x": value} for value in values])
    column = made.columns[-1]
    return column.type, [row[-1] for row in made.rows()]


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ((1, None, 2), "int", [1, None, 2]),
        ((1, 0.5), "float", [1.0, 0.5]),
        ((True, False), "bool", [True, False]),
        ((True, 1), "text", ["true", "1"]),
        ((1, "a"), "text", ["1", "a"]),
        ((2**63, 1), "text", [str(2**63), "1"]),
        ((None,), "text", [None]),
    ],
)
def test_a_column_has_one_type_that_holds_all_of_it(values, kind, expected):
    assert typed(*values) == (kind, expected)


def test_values_beyond_the_last_column_are_kept_as_json(monkeypatch):
    monkeypatch.setattr(columns, "MOST_COLUMNS", len(FIXED["trials"]) + 1)
    made = table("trials", lambda: [{"params.a": 1, "params.b": "=x"}, {"params.a": 2}])
    assert [column.name for column in made.columns[-2:]] == ["params.a", "more"]
    assert [row[-2:] for row in made.rows()] == [[1, '{"params.b":"=x"}'], [2, None]]


def test_nesting_without_end_becomes_json(runs):
    deep: dict[str, object] = {}
    place = deep
    for _ in range(30):
        place["n"] = {}
        place = place["n"]
    place["n"] = 1
    row = {}
    columns._flatten(row, "params", deep)
    assert len(row) == 1
    assert next(iter(row.values())).endswith("}")


@pytest.mark.parametrize(
    "text", ["=1+1", "+cmd", "-2+3", "@sum", "\tx", "\rx", "  =1", "＝1", "-", "=", "-1e5x", "\n=1"]
)
def test_text_that_looks_like_a_formula_is_held_back(text):
    assert harmless(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "a=b", "-5", "+1.5e-3", "-.5", "1", "true", "'=1"])
def test_other_text_is_left_alone(text):
    assert harmless(text) == text


@given(st.text())
def test_no_text_at_all_starts_a_formula(text):
    found = harmless(text)
    start = found.lstrip(" ")[:1]
    assert start not in set("=@\t\r") or not start
    if start in {"+", "-"}:
        float(found)


def test_cells():
    assert [cell(value) for value in (None, True, False, 1, 0.1, -2, "x\0y")] == [
        "", "true", "false", "1", "0.1", "-2", "x\ufffdy",
    ]  # fmt: skip


@given(
    st.lists(
        st.one_of(
            st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.text()
        ),
        min_size=1,
    )
)
def test_csv_of_anything_has_as_many_rows_as_there_were(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    made = table("trials", lambda: [{"params.x": value, "key": "k"} for value in values])
    assert write_csv(made, path) == len(values)
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert len(rows) == len(values) + 1
    assert {len(row) for row in rows} == {len(made.columns)}
    floats = [value for value in values if isinstance(value, float)]
    if len(floats) == len(values):
        assert [float(row[-1]) for row in rows[1:]] == floats


def test_a_trial_row_of_a_store_and_of_its_data_is_one(runs):
    data: RunData = runs.two()
    first = data.trials[0]
    assert trial_row(data.info, first)["attempts"] == 1
    assert trial_row(data.info, first)["wall_s"] == pytest.approx(0.9)


def test_every_fixed_column_and_group_is_documented():
    page = (Path(__file__).parents[2] / "docs/reference/columns.md").read_text()
    named = set(re.findall(r"`([^`]+)`", page))
    for kind in KINDS:
        assert set(FIXED[kind]) <= named, kind
    assert {f"{group}." for group in columns.GROUPS} <= named
    fixed = page.partition("## Fixed")[2].partition("## By group")[0]
    for line in fixed.splitlines()[4:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) < 4:
            continue
        for name in re.findall(r"`([^`]+)`", cells[0]):
            assert columns.TYPES[name] == cells[1], name
            tables = KINDS if cells[2] == "all" else tuple(cells[2].split(", "))
            assert {kind for kind in KINDS if name in FIXED[kind]} == set(tables), name
