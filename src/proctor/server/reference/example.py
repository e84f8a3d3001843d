"""Examples of answers, and the schemas they have.

In an example a name that ends with `?` may be missing from an answer; what is null or empty may be anything;
texts, numbers and truth values may be null instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


class Named(dict[str, Any]):
    """An object with any names, whose values are alike."""


class Maybe(dict[str, Any]):
    """An object, or null."""


@dataclass(frozen=True, slots=True)
class Free:
    """Anything, of which this is an example."""

    value: Any


def page(item: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A list as every route answers it."""
    return {"items": [item], "next": None, **more}


def plain(example: Any) -> Any:
    """An example as an answer has it."""
    if isinstance(example, Free):
        return example.value
    if isinstance(example, Mapping):
        return {name.removesuffix("?"): plain(value) for name, value in example.items()}
    return [plain(each) for each in example] if isinstance(example, list) else example


def schema_of(example: Any, known: Mapping[int, str] = MappingProxyType({})) -> dict[str, Any]:
    """The schema that an example has: names and types; of those that are `known` by `id`, a reference."""
    if id(example) in known:
        return {"$ref": f"#/components/schemas/{known[id(example)]}"}
    return _schema(example, known)


def shapes(examples: Mapping[str, Any]) -> dict[str, Any]:
    """The schemas of named examples, each with references to the others."""
    known = {id(example): name for name, example in examples.items()}
    return {name: _schema(example, known) for name, example in examples.items()}


def _schema(example: Any, known: Mapping[int, str]) -> dict[str, Any]:
    if isinstance(example, Named):
        (schema, *_) = [schema_of(value, known) for value in example.values()]
        return {"type": "object", "additionalProperties": schema}
    if isinstance(example, Mapping):
        return {
            "type": ["object", "null"] if isinstance(example, Maybe) else "object",
            "properties": {
                name.removesuffix("?"): schema_of(value, known) for name, value in example.items()
            },
            "required": sorted(name for name in example if not name.endswith("?")),
        }
    if isinstance(example, list):
        return {"type": "array", "items": schema_of(example[0], known) if example else {}}
    if example is None or isinstance(example, Free):
        return {}
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string"}
    return {"type": [kinds[type(example)], "null"]}
