"""Describe a registered experiment without running it, and make an instance from validated parameters."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from proctor.errors import UsageError
from proctor.experiments.base import Experiment, Registered, construct
from proctor.experiments.importing import make_neighbours_importable
from proctor.experiments.schema import (
    WHOLE,
    Params,
    declared_defaults,
    from_schema,
    from_signature,
    own_arguments,
    plain,
)
from proctor.model.direction import Direction
from proctor.model.subject import ExperimentInfo


def info(registered: Registered) -> ExperimentInfo:
    """Everything known before the run: parameters, digest, where it comes from."""
    from proctor.experiments.source import source_digest

    return _described(registered, source_digest(registered))


def parameters(registered: Registered) -> tuple[Params, bool]:
    """The declared parameters, and whether undeclared ones are accepted too."""
    cls = registered.cls
    own_constructor = cls.__init__ is not Experiment.__init__
    try:
        signed, takes_others = from_signature(cls.__init__) if own_constructor else ({}, True)
        if not cls.param_schema:
            return signed, takes_others
        declared, open_params = from_schema(cls.param_schema)
    except UsageError as error:
        raise UsageError(f"{registered.place}: experiment '{registered.slug}': {error}") from None
    for name, each in declared.items():
        if each.required and name in signed:
            declared[name] = _with_default(each, signed[name].default)
    return declared, open_params


def instantiate(registered: Registered, params: Mapping[str, Any]) -> Experiment:
    """An instance with these parameters. ParamError when they do not fit; its own errors pass through."""
    return construct(registered.cls, *fitted(registered, params))


def fitted(
    registered: Registered, params: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Any], dict[str, Any]]:
    """The parameters, checked and filled in; and as positional and named arguments of the constructor."""
    from proctor.spec.sweep import validate_params

    make_neighbours_importable(registered)
    cls = registered.cls
    values = validate_params(_described_once(registered), params)
    if cls.param_schema:
        spelt_out = declared_defaults(cls.param_schema)
        values = {name: value for name, value in values.items() if value is not None or name in spelt_out}
    own_constructor = cls.__init__ is not Experiment.__init__
    positional, named = _arguments(cls, values) if own_constructor else ([values], {})
    return values, positional, named


@cache
def _described_once(registered: Registered) -> ExperimentInfo:
    return _described(registered)


def _described(registered: Registered, digest: str = "") -> ExperimentInfo:
    params, open_params = parameters(registered)
    return ExperimentInfo(
        slug=registered.slug,
        digest=digest,
        summary=registered.summary,
        tags=registered.tags,
        params=params,
        open_params=open_params,
        source=_source(registered),
        better=_better(registered),
    )


def _better(registered: Registered) -> dict[str, str]:
    declared = registered.cls.better
    if not isinstance(declared, Mapping) or not set(declared.values()) <= set(Direction):
        raise UsageError(
            f"{_source(registered)}: 'better' of {registered.cls.__name__} maps names of metrics to 'higher' "
            f"or 'lower', not {declared!r}"
        )
    return {str(metric): str(word) for metric, word in declared.items()}


def _source(registered: Registered) -> str:
    """The module of a built-in experiment, the file of any other; relative when below the work folder."""
    module = registered.cls.__module__
    if module.startswith("proctor."):
        return module
    file = Path(registered.file)
    return str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else str(file)


def _with_default(each: Any, default: Any) -> Any:
    from dataclasses import replace

    return replace(each, default=default, nullable=each.nullable or default is None)


def _arguments(cls: type[Experiment], values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """What to call the constructor with. A value that is the default is left to the constructor itself."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    left = dict(values)
    arguments = own_arguments(cls.__init__)
    for argument in arguments:
        if argument.kind in {argument.VAR_KEYWORD, argument.VAR_POSITIONAL}:
            continue
        if argument.name == WHOLE and argument.name not in values:
            named[argument.name] = dict(values)
        elif argument.name in left:
            value = left.pop(argument.name)
            given = argument.default if _is_default(value, argument.default) else value
            if argument.kind is argument.POSITIONAL_ONLY:
                positional.append(given)
            else:
                named[argument.name] = given
    if any(argument.kind is argument.VAR_KEYWORD for argument in arguments):
        named |= left
    return positional, named


def _is_default(value: Any, default: Any) -> bool:
    """JSON cannot hold every default (a path, a tuple): such a one comes back as its plain form."""
    same = plain(default)
    return type(value) is type(same) and value == same
