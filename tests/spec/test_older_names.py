"""Parameters under their older names, lists of one, and choices spelt with the other dash."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.errors import ParamError, SpecError, UsageError
from proctor.experiments.schema import from_schema
from proctor.model.spec import ExperimentBody
from proctor.model.subject import ExperimentInfo
from proctor.spec.sweep import expand_points, points, validate_params

SCHEMA = {
    "records": {"type": "int", "default": 5, "aliases": ["num_records", "rows"]},
    "counts": {"type": "list", "each": "int", "default": [1, 2], "minimum": 1},
    "kinds": {"type": "list", "each": "str", "default": None, "choices": ["read-heavy", "mixed"]},
    "load": {"type": "str", "default": "mixed", "choices": ["write-heavy", "mixed"]},
}
INFO = ExperimentInfo(slug="demo", digest="d", params=from_schema(SCHEMA)[0])


def body(**values: Any) -> ExperimentBody:
    return ExperimentBody(experiment="demo", **values)


def test_an_older_name_is_taken_with_a_note_of_the_new_one() -> None:
    found, notes = expand_points(body(params={"num_records": 7}), INFO, 0)
    assert next(found)["records"] == 7
    assert notes == ("demo: 'num_records' is called 'records' now",)
    assert validate_params(INFO, {"rows": 3})["records"] == 3


def test_an_older_name_can_be_swept() -> None:
    for given in ({"params": {"num_records": [1, 2]}}, {"sweep": {"num_records": (1, 2)}}):
        assert [each["records"] for each in points(body(**given), INFO, 0)] == [1, 2]


@pytest.mark.parametrize("given", [{"num_records": 1, "records": 2}, {"num_records": 1, "rows": 2}])
def test_one_parameter_under_two_names_is_refused(given: dict[str, int]) -> None:
    with pytest.raises(ParamError, match="older name of 'records', which is given too"):
        points(body(params=given), INFO, 0)


def test_an_error_points_at_the_place_where_the_older_name_was_written() -> None:
    places = {"num_records": "a.yaml:3:5"}.get
    with pytest.raises(ParamError, match=r"^a\.yaml:3:5: parameter 'records' of 'demo'"):
        expand_points(body(params={"num_records": "x"}), INFO, 0, place=lambda name: places(name, ""))
    with pytest.raises(SpecError, match=r"^a\.yaml:3:5: the list of values"):
        expand_points(body(sweep={"num_records": ()}), INFO, 0, place=lambda name: places(name, ""))


def test_a_misspelt_older_name_is_recognised() -> None:
    with pytest.raises(ParamError, match="did you mean 'num_records'"):
        points(body(params={"num_record": 1}), INFO, 0)


def test_one_value_is_a_list_of_one_and_items_are_checked() -> None:
    assert points(body(params={"counts": 4}), INFO, 0)[0]["counts"] == [4]
    assert [each["counts"] for each in points(body(sweep={"counts": (4, [5, 6])}), INFO, 0)] == [[4], [5, 6]]
    assert points(body(), INFO, 0)[0]["kinds"] is None
    for value, message in (
        ([1, 0], "at least 1, found 0"),
        ([1, "x"], "expected a whole number"),
        ([1, None], "found nothing"),
        ([], "at least one value"),
    ):
        with pytest.raises(ParamError, match=message):
            points(body(params={"counts": value}), INFO, 0)


def test_hyphens_and_underscores_are_the_same_in_a_choice() -> None:
    assert points(body(params={"load": "write_heavy"}), INFO, 0)[0]["load"] == "write-heavy"
    assert points(body(params={"kinds": ["read_heavy"]}), INFO, 0)[0]["kinds"] == ["read-heavy"]
    with pytest.raises(ParamError, match="is not a choice"):
        points(body(params={"load": "heavy"}), INFO, 0)


def test_items_of_no_known_type_are_refused() -> None:
    with pytest.raises(UsageError, match="'thing' is not a type"):
        from_schema({"counts": {"type": "list", "each": "thing"}})
