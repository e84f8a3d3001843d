"""Check a document against a JSON Schema, as far as the published schemas go. No dependency at run time.

Knows the keywords in `_CHECKS`, with `$ref` into `$defs` only. Any other keyword is an error in the schema: a
check that is not made must not look as if it were.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "schemas"
MOST_PROBLEMS = 50
_NOTES = frozenset({"$schema", "$id", "$defs", "title", "description", "examples"})
_CHECKS = frozenset(
    {
        "$ref", "type", "enum", "const", "properties", "required", "additionalProperties", "items", "minimum",
        "maximum", "pattern", "minLength", "minItems", "anyOf",
    }
)  # fmt: skip
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}


class SchemaError(Exception):
    """The schema itself is wrong."""


@cache
def load_schema(name: str) -> Mapping[str, Any]:
    """A published schema by name: `perf-summary`."""
    schema: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return schema


def problems(document: Any, schema: Mapping[str, Any]) -> list[str]:
    """What is wrong with a document, each with its place; empty when it is valid."""
    found = []
    for problem in _check(document, schema, schema, "$"):
        found.append(problem)
        if len(found) == MOST_PROBLEMS:
            break
    return found


def _check(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], place: str) -> Iterator[str]:
    if unknown := schema.keys() - _NOTES - _CHECKS:
        raise SchemaError(f"the schema uses {', '.join(sorted(unknown))}, which this check does not support")
    if "$ref" in schema:
        yield from _check(value, _referred(schema["$ref"], root), root, place)
    if "anyOf" in schema and all(any(_check(value, each, root, place)) for each in schema["anyOf"]):
        yield f"{place}: matches none of the {len(schema['anyOf'])} allowed forms"
    if "type" in schema and not _is(value, schema["type"]):
        yield f"{place}: expected {_words(schema['type'])}, found {_kind(value)}"
        return
    yield from _value(value, schema, place)
    if isinstance(value, dict):
        yield from _object(value, schema, root, place)
    elif isinstance(value, list):
        yield from _array(value, schema, root, place)


def _array(value: list[Any], schema: Mapping[str, Any], root: Mapping[str, Any], place: str) -> Iterator[str]:
    if len(value) < schema.get("minItems", 0):
        yield f"{place}: {len(value)} items, at least {schema['minItems']} are needed"
    if "items" in schema:
        for at, item in enumerate(value):
            yield from _check(item, schema["items"], root, f"{place}[{at}]")


def _value(value: Any, schema: Mapping[str, Any], place: str) -> Iterator[str]:
    if "const" in schema and not _same(value, schema["const"]):
        yield f"{place}: must be {schema['const']!r}"
    if "enum" in schema and not any(_same(value, each) for each in schema["enum"]):
        yield f"{place}: {value!r:.60} is not one of {schema['enum']}"
    if isinstance(value, str):
        if len(value) < schema.get("minLength", 0):
            yield f"{place}: shorter than {schema['minLength']} characters"
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield f"{place}: {value!r:.60} does not match {schema['pattern']}"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if value < schema.get("minimum", value):
            yield f"{place}: {value} is below {schema['minimum']}"
        if value > schema.get("maximum", value):
            yield f"{place}: {value} is above {schema['maximum']}"


def _object(
    value: Mapping[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any], place: str
) -> Iterator[str]:
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{place}: '{name}' is missing"
    known = schema.get("properties", {})
    for name, item in value.items():
        if name in known:
            yield from _check(item, known[name], root, f"{place}.{name}")
        elif "additionalProperties" in schema:
            if schema["additionalProperties"] is False:
                yield f"{place}: '{name:.60}' is not a field here"
            else:
                yield from _check(item, schema["additionalProperties"], root, f"{place}.{name:.60}")


def _referred(reference: str, root: Mapping[str, Any]) -> Any:
    start, _, name = reference.rpartition("/")
    if start != "#/$defs" or name not in root.get("$defs", {}):
        raise SchemaError(f"{reference} cannot be resolved; only '#/$defs/<name>' is supported")
    return root["$defs"][name]


def _is(value: Any, wanted: str | list[str]) -> bool:
    if isinstance(wanted, list):
        return any(_is(value, each) for each in wanted)
    if isinstance(value, bool):
        return wanted == "boolean"
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[wanted])


def _same(value: Any, wanted: Any) -> bool:
    return value == wanted and isinstance(value, bool) == isinstance(wanted, bool)


def _words(wanted: str | list[str]) -> str:
    return " or ".join(wanted) if isinstance(wanted, list) else wanted


def _kind(value: Any) -> str:
    return next((name for name in ("boolean", *_TYPES) if _is(value, name)), type(value).__name__)
