"""Check parameters against what an experiment declares, and fill in the defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from proctor.errors import ParamError
from proctor.model.canonical import canonical_json
from proctor.model.secret import is_reference
from proctor.model.subject import ExperimentInfo, ParamInfo
from proctor.spec.node import NO, YES, found, nearest

Place = Callable[[str], str]
"""Where a parameter was written, for the start of an error message; empty when unknown."""

_EXPECTED = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "list": "a list",
    "dict": "a mapping",
}


def nowhere(name: str) -> str:
    """The place of parameters that came from code."""
    del name
    return ""


def validate_params(
    info: ExperimentInfo, params: Mapping[str, Any], *, place: Place = nowhere
) -> dict[str, Any]:
    """Every parameter with its value, in declared order; a ParamError says which one does not fit and why."""
    check_names(info, params, place=place)
    given = {name: check_value(info, name, value, place=place) for name, value in params.items()}
    return complete(info, given)


def check_names(info: ExperimentInfo, names: Iterable[str], *, place: Place = nowhere) -> None:
    """Refuse parameters that the experiment does not have, and miss those that it needs."""
    given = list(names)
    if not info.open_params:
        for name in given:
            if name not in info.params:
                hint = nearest(name, info.params) or "; it has no parameters"
                raise _error(place(name), f"'{name}' is not a parameter of '{info.slug}'{hint}")
    missing = [name for name, param in info.params.items() if param.required and name not in given]
    if missing:
        needs = ", ".join(f"'{name}'" for name in missing)
        raise _error(place(""), f"'{info.slug}' needs {needs}; give it under 'params' or 'sweep'")


def check_defaults(info: ExperimentInfo, given: Iterable[str], *, place: Place = nowhere) -> None:
    """Refuse a default that would be used and cannot be part of a trial's key."""
    for name in info.params.keys() - set(given):
        if not _is_json(info.params[name].default):
            message = (
                f"the default of '{name}' of '{info.slug}' cannot be written as JSON; give it in the spec"
            )
            raise _error(place(""), message)


def check_value(info: ExperimentInfo, name: str, value: Any, *, place: Place = nowhere) -> Any:
    """The value as the experiment will get it: whole numbers become floats where a float is declared."""
    if not _is_json(value):
        raise _error(place(name), f"parameter '{name}' of '{info.slug}': the value cannot be written as JSON")
    param = info.params.get(name)
    if param is None or is_reference(value):
        return value
    problem, value = _fit(param, value)
    if problem:
        raise _error(place(name), f"parameter '{name}' of '{info.slug}': {problem}")
    return value


def complete(info: ExperimentInfo, given: Mapping[str, Any]) -> dict[str, Any]:
    """Checked values with defaults for the rest: declared ones in declared order, then the others."""
    declared = {
        name: given.get(name, param.default)
        for name, param in info.params.items()
        if name in given or not param.required
    }
    return {**declared, **{name: value for name, value in given.items() if name not in declared}}


def _is_json(value: Any) -> bool:
    try:
        canonical_json(value).encode()
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _error(place: str, message: str) -> ParamError:
    return ParamError(f"{place}: {message}" if place else message)


def _fit(param: ParamInfo, value: Any) -> tuple[str, Any]:
    """What is wrong, or nothing, and the value in the declared type."""
    if value is None:
        allowed = param.nullable or param.default is None or param.type not in _EXPECTED
        return ("" if allowed else f"expected {_EXPECTED[param.type]}, found nothing"), None
    fits, value = _convert(param.type, value)
    if not fits:
        hint = "; put it in quotes" if param.type == "str" and isinstance(value, int | float) else ""
        return f"expected {_EXPECTED[param.type]}, found {found(value)}{hint}", value
    if param.choices and not any(_same(value, choice) for choice in param.choices):
        return _not_a_choice(param, value), value
    if isinstance(value, int | float) and not isinstance(value, bool):
        if param.minimum is not None and value < param.minimum:
            return f"expected at least {param.minimum:g}, found {value}", value
        if param.maximum is not None and value > param.maximum:
            return f"expected at most {param.maximum:g}, found {value}", value
    return "", value


def _same(value: Any, choice: Any) -> bool:
    return bool(value == choice) and isinstance(value, bool) == isinstance(choice, bool)


def _not_a_choice(param: ParamInfo, value: Any) -> str:
    texts = [choice for choice in param.choices if isinstance(choice, str)]
    hint = nearest(value, texts) if isinstance(value, str) else ""
    if "did you mean" not in hint:
        hint = f"; choose from {', '.join(map(str, param.choices))}"
    return f"{found(value)} is not a choice{hint}"


def _convert(kind: str, value: Any) -> tuple[bool, Any]:  # noqa: PLR0911 - one line per type reads best
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case "bool":
            if isinstance(value, str) and value.lower() in YES | NO:
                return True, value.lower() in YES
            return isinstance(value, bool), value
        case "int":
            if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
                return True, int(value)
            return is_number and isinstance(value, int), value
        case "float":
            return is_number, _as_float(value) if is_number else value
        case "str":
            return isinstance(value, str), value
        case "list":
            return isinstance(value, list | tuple), list(value) if isinstance(value, tuple) else value
        case "dict":
            return isinstance(value, Mapping), value
    return True, value


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return value
