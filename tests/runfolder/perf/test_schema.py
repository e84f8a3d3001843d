"""Our small validator agrees with the reference implementation, and refuses what it does not know."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.runfolder.perf.schema import MOST_PROBLEMS, SchemaError, load_schema, problems

SCHEMAS: list[dict[str, Any]] = [
    {"type": "integer", "minimum": 2, "maximum": 5},
    {"type": "number", "minimum": 0},
    {"type": ["string", "null"], "minLength": 2},
    {"type": "string", "pattern": "^a+$"},
    {"enum": [1, "a", None, True]},
    {"const": 1},
    {"type": "array", "items": {"type": "integer"}, "minItems": 1},
    {
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"type": "integer"}},
        "additionalProperties": False,
    },
    {"type": "object", "additionalProperties": {"type": "number", "minimum": 1}},
    {"anyOf": [{"type": "null"}, {"type": "string", "pattern": "^[0-9a-f]{2}$"}]},
    {"$ref": "#/$defs/x", "$defs": {"x": {"type": "boolean"}}},
    {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "array"}}},
]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 8)
    | st.floats(-3, 8)
    | st.sampled_from(["", "a", "aa", "0f"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
@given(value=VALUES)
def test_it_agrees_with_the_reference_implementation(schema: dict[str, Any], value: Any):
    reference = jsonschema.Draft202012Validator(schema)
    assert (problems(value, schema) == []) == reference.is_valid(value)


def test_a_problem_names_its_place():
    schema = {"properties": {"a": {"items": {"type": "integer"}}}}
    assert problems({"a": [1, "x"]}, schema) == ["$.a[1]: expected integer, found string"]


def test_a_thousand_problems_are_cut_short():
    assert len(problems(["x"] * 1000, {"items": {"type": "integer"}})) == MOST_PROBLEMS


def test_a_schema_that_asks_for_more_than_is_checked_is_refused():
    with pytest.raises(SchemaError, match="format"):
        problems("x", {"format": "date"})
    with pytest.raises(SchemaError, match="cannot be resolved"):
        problems("x", {"$ref": "#/$defs/none"})


@pytest.mark.parametrize("kind", ["manifest", "summary", "metrics", "series"])
def test_the_published_schemas_use_only_what_is_checked(kind: str):
    assert problems(None, load_schema(f"perf-{kind}"))
