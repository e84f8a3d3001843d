"""Parameters are read from every shape in which people declare them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, Union

import pytest

from proctor.errors import UsageError
from proctor.experiments.schema import declared_defaults, from_schema, from_signature, plain
from proctor.model.subject import REQUIRED, ParamInfo


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


def info(name: str, kind: str = "any", default: Any = REQUIRED, **more: Any) -> ParamInfo:
    return ParamInfo(name=name, type=kind, default=default, **more)


def signature(constructor):
    return from_signature(constructor)


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (int, info("p", "int")),
        (float, info("p", "float")),
        (bool, info("p", "bool")),
        (str, info("p", "str")),
        (Path, info("p", "str")),
        (list[int], info("p", "list")),
        (tuple[int, ...], info("p", "list")),
        (Sequence[str], info("p", "list")),
        (dict[str, int], info("p", "dict")),
        (Any, info("p", "any")),
        (object, info("p", "any")),
        (int | None, info("p", "int", nullable=True)),
        (Optional[float], info("p", "float", nullable=True)),  # noqa: UP045 - older code is written so
        (Union[int, float], info("p", "float")),  # noqa: UP007 - same
        (int | str, info("p", "any")),
        (Literal["a", "b"], info("p", "str", choices=("a", "b"))),
        (Literal["a"] | None, info("p", "str", choices=("a",), nullable=True)),
        (Literal[1, None], info("p", "int", choices=(1,), nullable=True)),  # noqa: PYI061 - as some write it
        (Literal["a"] | int, info("p", "any")),
        (Annotated[int, "metres"], info("p", "int")),
        (Colour, info("p", "str", choices=("red", "blue"))),
        ("int | None", info("p", "int", nullable=True)),
        ("NoSuchName", info("p", "any")),
    ],
)
def test_an_annotation_says_the_type(annotation, expected):
    def constructor(self, p): ...

    constructor.__annotations__ = {"p": annotation}
    assert signature(constructor) == ({"p": expected}, False)


def test_one_annotation_that_cannot_be_evaluated_leaves_the_others_alone():
    def constructor(self, p, q): ...

    constructor.__annotations__ = {"p": "NoSuchName", "q": "int"}
    assert signature(constructor)[0] == {"p": info("p"), "q": info("q", "int")}


def test_without_annotation_the_default_says_the_type():
    def constructor(self, a, b=1, c=0.5, d="x", *, e=False, f=(1, 2), g=None, h={"k": 1}): ...  # noqa: B006

    assert signature(constructor)[0] == {
        "a": info("a"),
        "b": info("b", "int", 1),
        "c": info("c", "float", 0.5),
        "d": info("d", "str", "x"),
        "e": info("e", "bool", False),
        "f": info("f", "list", [1, 2]),
        "g": info("g", "any", None, nullable=True),
        "h": info("h", "dict", {"k": 1}),
    }


def test_keyword_arguments_or_a_params_mapping_accept_any_parameter():
    assert signature(lambda self, n=1, **more: None) == ({"n": info("n", "int", 1)}, True)
    assert signature(lambda self, params=None: None) == ({}, True)
    assert signature(lambda self, *rest: None) == ({}, False)


def test_a_json_schema_is_understood():
    schema = {
        "type": "object",
        "properties": {
            "agents": {"type": "integer", "minimum": 1, "maximum": 9, "description": "how many"},
            "rate": {"type": "number", "default": 0.5, "exclusiveMinimum": 0},
            "mode": {"type": ["string", "null"], "enum": ["a", "b"]},
            "above": {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 9, "format": "x"},
        },
        "required": ["agents", "above"],
        "additionalProperties": True,
    }
    params, open_params = from_schema(schema)
    assert open_params
    assert params["agents"] == info("agents", "int", minimum=1, maximum=9, description="how many")
    assert params["rate"] == info("rate", "float", 0.5, minimum=math.nextafter(0, 1))
    assert params["mode"] == info("mode", "str", None, choices=("a", "b"), nullable=True)
    assert params["above"] == info("above", "int", minimum=4, maximum=8)
    assert declared_defaults(schema) == {"rate": 0.5}


def test_a_json_schema_is_closed_unless_it_says_otherwise():
    assert from_schema({"properties": {"n": {"type": "integer"}}})[1] is False
    assert from_schema({"type": "object"}) == ({}, True)


def test_the_flat_shape_and_the_shorthands_are_understood():
    params, open_params = from_schema(
        {
            "a": int,
            "b": (int, 3),
            "c": ("float", 1),
            "d": {"type": int, "default": 2, "choices": [1, 2], "min": 1, "max": 2, "help": "which"},
            "e": {"default": "x"},
            "f": Literal["p", "q"],
            "g": {"type": "bool", "required": False},
            "h": (int | None, None),
            "i": {"type": "list", "nullable": True},
            "j": "string",
        }
    )
    assert not open_params
    assert params == {
        "a": info("a", "int"),
        "b": info("b", "int", 3),
        "c": info("c", "float", 1),
        "d": info("d", "int", 2, choices=(1, 2), minimum=1, maximum=2, description="which"),
        "e": info("e", "str", "x"),
        "f": info("f", "str", choices=("p", "q")),
        "g": info("g", "bool", None, nullable=True),
        "h": info("h", "int", None, nullable=True),
        "i": info("i", "list", nullable=True),
        "j": info("j", "str"),
    }


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"n": {"type": "integr"}}, "'integr' is not a type"),
        ({"n": {"type": "int", "defualt": 3}}, "'defualt' is not a field here"),
        ({"n": 3}, "declares no type"),
        ({"properties": {}, "required": ["n"]}, "requires 'n', which it does not declare"),
        ([1], "must be a mapping"),
    ],
)
def test_a_wrong_schema_says_what_is_wrong(schema, message):
    with pytest.raises(UsageError, match=message):
        from_schema(schema)


def test_defaults_become_what_json_can_hold():
    assert plain({"a": (1, Path("x/y")), 2: {3, 1}}) == {"a": [1, "x/y"], "2": [1, 3]}
    assert plain(Colour.RED) == "red"
    assert plain(math.inf) is None
    assert plain(object()) is None
