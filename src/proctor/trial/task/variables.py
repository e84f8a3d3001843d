"""Fill in `${VAR}` and `${VAR:-default}` in a task's environment from the variables that the spec grants."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from proctor.errors import TaskError

_REFERENCE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}", re.DOTALL)


def fill(values: Mapping[str, str], given: Mapping[str, str], where: str) -> dict[str, str]:
    """The same variables, references filled in; an unset one without a default is the task's error.

    A value is a reference as a whole or not at all: a dollar sign in a longer text is only a dollar sign.
    """
    return {name: _filled(value, given, where) for name, value in values.items()}


def wanted(values: Mapping[str, str]) -> Iterator[str]:
    """The variables that must be granted: those without a default."""
    for value in values.values():
        match = _REFERENCE.fullmatch(value)
        if match and match[2] is None:
            yield match[1]


def _filled(value: str, given: Mapping[str, str], where: str) -> str:
    match = _REFERENCE.fullmatch(value)
    if match is None:
        return value
    name, default = match[1], match[2]
    if name in given:
        return given[name]
    if default is None:
        raise TaskError(
            f"{where}: ${{{name}}} has no default, and the spec does not grant it (pass_env) or it is not set"
        )
    return default
