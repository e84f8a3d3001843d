"""`${NAME}` in a task's compose file, filled in as compose programs do, with the names that Harbor sets.

A name that is not set is empty. Variables of this machine are never among them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proctor.errors import TaskError

MAIN_IMAGE = "proctor-main-image"
"""Placeholder for the image of the main service until that is made."""
LOGS = {
    "VERIFIER_LOGS": "/logs/verifier",
    "AGENT_LOGS": "/logs/agent",
    "ARTIFACTS": "/logs/artifacts",
}
_NAME = re.compile(r"[A-Za-z_]\w*")
_MEGABYTE = 1 << 20
_MOST_BYTES = 256 << 10
_BARE = re.compile(r"\$\$|\$\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)")


def harbor_variables(
    folder: Path,
    *,
    main_image: str = MAIN_IMAGE,
    prebuilt: str | None = None,
    cpus: float | None = None,
    memory_bytes: int | None = None,
) -> dict[str, str]:
    """What Harbor sets for a compose file in a folder."""
    found = {"CONTEXT_DIR": str(folder.resolve()), "MAIN_IMAGE_NAME": main_image}
    for name, path in LOGS.items():
        found |= {f"HOST_{name}_PATH": path, f"ENV_{name}_PATH": path}
    if prebuilt:
        found["PREBUILT_IMAGE_NAME"] = prebuilt
    if cpus:
        found["CPUS"] = f"{cpus:g}"
    if memory_bytes:
        found["MEMORY"] = f"{memory_bytes // _MEGABYTE}M"
    return found


def fill(value: Any, variables: Mapping[str, str], where: str) -> Any:
    """A document with the variables in its texts filled in; TaskError for `${NAME:?why}` without a value."""
    if isinstance(value, str):
        return _filled(value, variables, where)
    if isinstance(value, list):
        return [fill(each, variables, where) for each in value]
    if isinstance(value, dict):
        return {key: fill(each, variables, where) for key, each in value.items()}
    return value


def used(file: Path) -> list[str]:
    """The variables that a compose file uses without a default; none of a file that cannot be read."""
    import yaml

    try:
        data = yaml.safe_load(file.read_text()) if file.stat().st_size <= _MOST_BYTES else None
    except (OSError, ValueError, yaml.YAMLError):
        return []  # reading it for the sandbox says what is wrong
    found: dict[str, None] = {}
    _collect(data, found)
    return list(found)


def _collect(value: Any, found: dict[str, None]) -> None:
    if isinstance(value, str):
        found |= dict.fromkeys(
            match[1] or match[2] for match in _BARE.finditer(value) if match[1] or match[2]
        )
    for each in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        _collect(each, found)


def protect(value: Any) -> Any:
    """A document in which no program finds another variable."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, list):
        return [protect(each) for each in value]
    if isinstance(value, dict):
        return {key: protect(each) for key, each in value.items()}
    return value


def _filled(text: str, variables: Mapping[str, str], where: str) -> str:
    pieces: list[str] = []
    at = 0
    while (found := text.find("$", at)) >= 0:
        pieces.append(text[at:found])
        at = found + 1
        if text[at : at + 1] == "$":
            pieces.append("$")
            at += 1
        elif text[at : at + 1] == "{":
            end = _end(text, at + 1, where)
            pieces.append(_braced(text[at + 1 : end], variables, where))
            at = end + 1
        elif name := _NAME.match(text, at):
            pieces.append(variables.get(name[0], ""))
            at = name.end()
        else:
            raise TaskError(f"{where}: '{text}': write a dollar sign that begins no variable as $$")
    return "".join([*pieces, text[at:]])


def _end(text: str, at: int, where: str) -> int:
    """Where the brace that was opened before `at` is closed."""
    depth = 1
    for place in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if not depth:
            return place
    raise TaskError(f"{where}: '{text}': a brace is not closed")


def _braced(body: str, variables: Mapping[str, str], where: str) -> str:
    name = _NAME.match(body)
    kind = re.match(r":?[-+?]|$", body[name.end() :]) if name else None
    if not name or not kind:
        raise TaskError(f"{where}: '${{{body}}}' is not a variable")
    value = variables.get(name[0])
    given = bool(value) if kind[0].startswith(":") else value is not None
    rest = body[name.end() + kind.end() :]
    if kind[0].endswith("+"):
        return _filled(rest, variables, where) if given else ""
    if given or not kind[0]:
        return value or ""
    if kind[0].endswith("?"):
        raise TaskError(f"{where}: {name[0]} has no value: {_filled(rest, variables, where)}")
    return _filled(rest, variables, where)
