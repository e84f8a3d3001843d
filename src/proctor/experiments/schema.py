"""Read what parameters a class takes: from its `param_schema`, in any of three shapes, or its signature."""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from pathlib import PurePath
from typing import Any, Literal, NamedTuple

from proctor.errors import UsageError
from proctor.model.subject import REQUIRED, ParamInfo

Params = dict[str, ParamInfo]

_TYPE_NAMES = {
    "any": "any",
    "array": "list",
    "bool": "bool",
    "boolean": "bool",
    "dict": "dict",
    "float": "float",
    "int": "int",
    "integer": "int",
    "list": "list",
    "number": "float",
    "object": "dict",
    "str": "str",
    "string": "str",
    "tuple": "list",
}
_FIELDS = {
    *("type", "default", "description", "help", "title", "choices", "enum", "minimum", "min", "maximum"),
    *("max", "exclusiveMinimum", "exclusiveMaximum", "nullable", "required", "each", "aliases"),
}
_PASSED_OVER = {
    *("additionalProperties", "deprecated", "examples", "format", "items", "maxItems", "maxLength"),
    *("minItems", "minLength", "multipleOf", "pattern", "properties", "uniqueItems", "unit"),
}
"""Fields of JSON Schema that older experiments carry; they are not checked."""
WHOLE = "params"
"""A constructor argument of this name receives the whole mapping, not one parameter."""


class _Kind(NamedTuple):
    """What an annotation or a type's name says."""

    type: str = "any"
    nullable: bool = False
    holds_list: bool = False
    """Whether a list is one of its values; it is not swept then."""
    choices: tuple[Any, ...] = ()


def from_schema(schema: Mapping[str, Any]) -> tuple[Params, bool]:
    """The declared parameters, and whether others are accepted too."""
    if not isinstance(schema, Mapping):
        raise UsageError(f"param_schema must be a mapping, not {type(schema).__name__}")
    if isinstance(schema.get("properties"), Mapping):
        required = set(schema.get("required") or ())
        unknown = required - set(schema["properties"])
        if unknown:
            raise UsageError(f"param_schema requires '{min(unknown)}', which it does not declare")
        declared = {
            str(name): _declared(str(name), value, name in required)
            for name, value in schema["properties"].items()
        }
        return declared, bool(schema.get("additionalProperties", False))
    if schema.get("type") == "object":
        return {}, bool(schema.get("additionalProperties", True))
    return {str(name): _declared(str(name), value, None) for name, value in schema.items()}, False


def declared_defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Only the defaults that the schema spells out: what is optional without one stays absent."""
    fields = schema["properties"] if isinstance(schema.get("properties"), Mapping) else schema
    return {
        name: info.default
        for name, info in from_schema(schema)[0].items()
        if not info.required and (not isinstance(fields[name], Mapping) or "default" in fields[name])
    }


def from_signature(constructor: Callable[..., Any]) -> tuple[Params, bool]:
    """A constructor's named parameters, and whether it takes any others."""
    hints = _hints(constructor)
    params: Params = {}
    takes_others = False
    for argument in own_arguments(constructor):
        if argument.kind is argument.VAR_KEYWORD or argument.name == WHOLE:
            takes_others = True
        elif argument.kind is not argument.VAR_POSITIONAL:
            params[argument.name] = _from_argument(argument, hints.get(argument.name, argument.empty))
    return params, takes_others


@cache
def own_arguments(constructor: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    """The arguments after `self`."""
    return tuple(inspect.signature(constructor).parameters.values())[1:]


def plain(value: Any) -> Any:  # noqa: PLR0911 - one line per kind of value
    """A default as a JSON value; None for what JSON cannot represent."""
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, PurePath):
        return str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=repr)
    return None


def _from_argument(argument: inspect.Parameter, annotation: Any) -> ParamInfo:
    if argument.default is argument.empty:
        kind, default = _kind(annotation), REQUIRED
    else:
        default = plain(argument.default)
        kind = _kind(annotation) if annotation is not argument.empty else _of_value(default)
    return _of_kind(argument.name, kind, default)


def _declared(name: str, value: Any, required: bool | None) -> ParamInfo:
    """One entry of a schema. `required` is None in the flat shape, where a missing default says it."""
    if isinstance(value, Mapping):
        return _from_fields(name, value, required)
    if isinstance(value, tuple) and len(value) == 2:
        return _of_kind(name, _named_or_annotated(name, value[0]), plain(value[1]))
    return _of_kind(name, _named_or_annotated(name, value))


def _of_kind(name: str, kind: _Kind, default: Any = REQUIRED) -> ParamInfo:
    return ParamInfo(
        name=name,
        type=kind.type,
        default=default,
        choices=kind.choices,
        nullable=kind.nullable or default is None,
        holds_list=kind.holds_list,
    )


def _from_fields(name: str, fields: Mapping[str, Any], required: bool | None) -> ParamInfo:
    unknown = set(fields) - _FIELDS - _PASSED_OVER
    if unknown:
        raise UsageError(
            f"param_schema['{name}']: '{min(unknown)}' is not a field here; "
            f"fields are {', '.join(sorted(_FIELDS))}"
        )
    default = plain(fields["default"]) if "default" in fields else REQUIRED
    kind = _named_or_annotated(name, fields["type"]) if "type" in fields else _of_value(default)
    optional = required is False or fields.get("required") is False
    if default is REQUIRED and optional:
        default = None
    choices = tuple(fields.get("choices") or fields.get("enum") or kind.choices)
    each = _named_or_annotated(name, fields["each"]).type if "each" in fields else ""
    return ParamInfo(
        name=name,
        type=kind.type,
        default=default,
        description=str(fields.get("description") or fields.get("help") or ""),
        choices=choices,
        minimum=_bound(fields, "minimum", "min", "exclusiveMinimum", each or kind.type, 1),
        maximum=_bound(fields, "maximum", "max", "exclusiveMaximum", each or kind.type, -1),
        nullable=bool(fields.get("nullable")) or kind.nullable or default is None,
        holds_list=kind.holds_list,
        each=each,
        aliases=tuple(fields.get("aliases") or ()),
    )


def _bound(
    fields: Mapping[str, Any], long: str, short: str, exclusive: str, kind: str, inwards: int
) -> float | None:
    if fields.get(exclusive) is not None:
        edge: float = fields[exclusive]
        return edge + inwards if kind == "int" else math.nextafter(edge, inwards * math.inf)
    bound: float | None = fields.get(long, fields.get(short))
    return bound


def _named_or_annotated(name: str, value: Any) -> _Kind:
    """A type given as Python writes it (`int`, `int | None`) or by its name (`"integer"`)."""
    if isinstance(value, list):
        kinds = [_named_or_annotated(name, item) for item in value if item not in {"null", "None"}]
        nullable = len(kinds) < len(value) or any(kind.nullable for kind in kinds)
        return _merge(kinds)._replace(nullable=nullable)
    if isinstance(value, str):
        if value not in _TYPE_NAMES:
            raise UsageError(
                f"param_schema['{name}']: '{value}' is not a type; types are {', '.join(sorted(_TYPE_NAMES))}"
            )
        return _Kind(_TYPE_NAMES[value])
    if isinstance(value, type) or typing.get_origin(value) is not None or value is Any:
        return _kind(value)
    raise UsageError(
        f"param_schema['{name}']: {value!r} declares no type; "
        "write int, (int, 3) or {'type': 'int', 'default': 3}"
    )


def _kind(annotation: Any) -> _Kind:
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is typing.Annotated:
        return _kind(arguments[0])
    if origin is Literal:
        values = tuple(value for value in arguments if value is not None)
        return _merge([_of_value(value) for value in values])._replace(
            nullable=len(values) < len(arguments), choices=values
        )
    if origin is typing.Union or origin is types.UnionType:
        some = [_kind(each) for each in arguments if each is not type(None)]
        nullable = len(some) < len(arguments) or any(kind.nullable for kind in some)
        return _merge(some)._replace(nullable=nullable)
    return _of_class(origin or annotation)


def _of_class(cls: Any) -> _Kind:
    if not isinstance(cls, type):
        return _Kind()
    if issubclass(cls, Enum):
        values = tuple(plain(each) for each in cls)
        return _merge([_of_value(value) for value in values])._replace(choices=values)
    if issubclass(cls, PurePath):
        return _Kind("str")
    for base, kind in ((bool, "bool"), (int, "int"), (float, "float"), (str, "str"), (Mapping, "dict")):
        if issubclass(cls, base):
            return _Kind(kind)
    if cls.__name__ in {
        "list",
        "tuple",
        "set",
        "frozenset",
        "Sequence",
        "Iterable",
        "Collection",
        "MutableSequence",
    }:
        return _Kind("list")
    return _Kind()


def _of_value(value: Any) -> _Kind:
    """What a default says when nothing else does."""
    return _Kind() if value is None or value is REQUIRED else _of_class(type(value))


def _merge(kinds: list[_Kind]) -> _Kind:
    """The one type that holds all of them; `any` when there is none."""
    names = {kind.type for kind in kinds}
    listed = "list" in names or any(kind.holds_list for kind in kinds)
    closed = all(kind.choices for kind in kinds)
    choices = tuple(choice for kind in kinds for choice in kind.choices) if closed else ()
    if len(names) == 1:
        return _Kind(names.pop(), holds_list=listed, choices=choices)
    return _Kind("float" if names == {"int", "float"} else "any", holds_list=listed, choices=choices)


def _hints(constructor: Callable[..., Any]) -> dict[str, Any]:
    """Evaluated annotations. One that cannot be evaluated is left out and means `any`."""
    try:
        return typing.get_type_hints(constructor)
    except Exception:  # noqa: BLE001 - annotations are the author's code; try them one by one
        hints = {}
        for name, annotation in getattr(constructor, "__annotations__", {}).items():
            try:
                hints[name] = typing.get_type_hints(_Annotated(constructor, {name: annotation}))[name]
            except Exception:  # noqa: BLE001 - same; the parameter then accepts anything
                hints[name] = Any
        return hints


class _Annotated:
    """A stand-in for a function with some of its annotations."""

    def __init__(self, function: Callable[..., Any], annotations: dict[str, Any]) -> None:
        self.__annotations__ = annotations
        self.__globals__ = getattr(function, "__globals__", {})
