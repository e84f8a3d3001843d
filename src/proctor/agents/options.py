"""The `agent_options` of a spec, held against what an agent's class declares."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from proctor.errors import UsageError
from proctor.spec.node import nearest

_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    NoneType: "null",
    dict: "a mapping",
    list: "a list",
}


def check_options(agent: str, found: Any, options: Mapping[str, Any]) -> None:
    """Refuse an option that the class does not have, that is missing, or whose type does not fit."""
    try:
        parameters = inspect.signature(found).parameters
        hints = get_type_hints(found.__init__ if inspect.isclass(found) else found)
    except (TypeError, ValueError, NameError, AttributeError):  # code of strangers need not be annotated
        return
    named = {
        name: each
        for name, each in parameters.items()
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    }
    if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        for name in options:
            if name not in named:
                hint = nearest(name, named) or "; it has none"
                raise UsageError(f"agent_options: '{name}' is not an option of agent '{agent}'{hint}")
    for name, each in named.items():
        if each.default is each.empty and name not in options:
            raise UsageError(f"agent_options: agent '{agent}' needs the option '{name}'")
        if name in options and name in hints and not _fits(options[name], hints[name]):
            wanted = " or ".join(dict.fromkeys(_words(hints[name])))
            raise UsageError(
                f"agent_options: '{name}' of agent '{agent}' must be {wanted}, not {options[name]!r:.80}"
            )


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value from a spec can be of a type. A type that no spec can write is not judged."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in arguments)
    kind = _plain(origin or hint)
    if kind in (dict, list):
        inner = arguments[-1] if arguments else Any
        if not isinstance(value, Mapping if kind is dict else list | tuple):
            return False
        return all(_fits(each, inner) for each in (value.values() if isinstance(value, Mapping) else value))
    if kind in (int, float):
        return isinstance(value, int | kind) and not isinstance(value, bool)
    return kind is None or isinstance(value, kind)


def _words(hint: Any) -> list[str]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return [word for each in arguments for word in _words(each)]
    kind = _plain(origin or hint)
    if kind is dict and len(arguments) == 2 and (inner := _plain(arguments[1])) in (str, int, float):
        return [f"a mapping of names to {'texts' if inner is str else 'numbers'}"]
    return [_WORDS[kind]] if kind else []


def _plain(hint: Any) -> type | None:
    if not inspect.isclass(hint):
        return None
    if hint in _WORDS:
        return hint
    if issubclass(hint, Mapping):
        return dict
    return (
        list if hint.__module__ == "collections.abc" and hint.__name__ in ("Sequence", "Iterable") else None
    )
