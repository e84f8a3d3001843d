"""Fill `${VAR}` and `${VAR:-default}` in a task's environment from the variables a run was given."""

from __future__ import annotations

import re
from collections.abc import Mapping

from proctor.errors import TaskError

_REFERENCE = re.compile(r"\$\{(\w+)(?::?-([^}]*))?\}")


def fill(values: Mapping[str, str], given: Mapping[str, str], where: str) -> dict[str, str]:
    """The same variables, references filled in; an unset one without a default is the task's error."""

    def replaced(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        value = given.get(name)
        if value:
            return value
        if default is None:
            raise TaskError(f"{where}: ${{{name}}} is not set and has no default; set it in the environment")
        return default

    return {name: _REFERENCE.sub(replaced, value) for name, value in values.items()}
