"""Where a task's tests run: in the agent's sandbox, or in one of their own, and from which image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import TaskError
from proctor.tasks.toml_file import Table, TomlFile

_DEFINES = ("Dockerfile", "docker-compose.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A separate verifier."""

    table: Table
    """`[verifier.environment]` of the step or of the task; empty for a copy of the task's environment."""
    image_from: Path | None = None
    """The folder of tests that has an image of its own, with the tests in it."""
    image: str | None = None
    """A ready image that has the tests in it."""


def definition_of(
    file: TomlFile, own: Table, above: Mapping[str, object], folder: Path, step: str | None
) -> Definition | None:
    """What a verifier runs in; None when it shares the agent's sandbox. A step's word counts first."""
    mode = _mode(file, own) or (_mode(file, above) if step else None) or "shared"
    if mode == "shared":
        return None
    candidates = [(own, folder / "tests" if step is None else folder / "steps" / step / "tests")]
    if step is not None:
        candidates.append((file.named(above, getattr(above, "path", ())), folder / "tests"))
    tables = [file.table(each, "environment") for each, _ in candidates]
    table = next((each for each in tables if each), tables[0])
    for environment, (_, tests) in zip(tables, candidates, strict=True):
        if image := environment.get("docker_image"):
            return Definition(table=table, image_from=tests, image=str(image))
        if any((tests / name).is_file() for name in _DEFINES):
            return Definition(table=table, image_from=tests)
    return Definition(table=table)


def _mode(file: TomlFile, table: Mapping[str, object]) -> str | None:
    mode = table.get("environment_mode")
    own = "environment" in table
    if mode is None:
        return "separate" if own else None
    if mode not in {"shared", "separate"}:
        raise file.wrong("environment_mode", mode, "shared or separate", table)
    if mode == "shared" and own:
        place = file.place("environment_mode", table)
        raise TaskError(
            f"{place}: environment_mode is 'shared' and there is a [verifier.environment]; remove one of them"
        )
    return str(mode)
