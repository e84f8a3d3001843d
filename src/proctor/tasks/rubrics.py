"""Read the rubrics of a prepared task and the tests that belong to each, in either of their spellings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from proctor.disk import read_small
from proctor.errors import TaskError
from proctor.model.task import Rubric, TestScript

RUBRIC_KEYS = frozenset(
    {
        *("id", "name", "weight", "tests", "test_scripts", "criterion", "description", "text"),
        *("category", "metadata"),
    }
)
_MOST_BYTES = 4 << 20


def rubrics(data: Mapping[str, Any], folder: Path, where: str) -> tuple[Rubric, ...]:
    """Rubrics with weights; one without tests is kept and shown as untested.

    `test_scripts` is a list of `{path, rubric_id, content}`, written into the working folder, or a mapping of
    rubrics to scripts below `tests/`, or a list of those.
    """
    rows, scripts = data.get("rubrics", []), data.get("test_scripts", {})
    if not isinstance(rows, list):
        raise TaskError(f"{where}: 'rubrics' must be a list")
    written = written_scripts(scripts, folder, where)
    named = {} if written is not None else _by_rubric(scripts, where)
    if not rows:
        rows = [{"id": name} for name in (written or named)]
    found = tuple(_rubric(row, number, named, folder, where) for number, row in enumerate(rows, 1))
    return with_scripts(found, written, where) if written is not None else found


def with_scripts(
    known: Sequence[Rubric], scripts: Mapping[str, Sequence[TestScript]], where: str
) -> tuple[Rubric, ...]:
    """The rubrics with these scripts; TaskError for a script of a rubric that is not there."""
    ids = [each.id for each in known]
    for name in scripts:
        if name not in ids:
            raise TaskError(f"{where}: test_scripts: there is no rubric '{name}'; there is {', '.join(ids)}")
    return tuple(replace(each, scripts=tuple(scripts.get(each.id, ()))) for each in known)


def written_scripts(scripts: Any, folder: Path, where: str) -> dict[str, list[TestScript]] | None:
    """Scripts by rubric, where they are given as rows with a path; None for the other spelling."""
    if not isinstance(scripts, list) or not any(isinstance(row, dict) for row in scripts):
        return None
    found: dict[str, list[TestScript]] = {}
    for number, row in enumerate(scripts, 1):
        if not isinstance(row, dict):
            raise TaskError(f"{where}: test_scripts: row {number} must be a mapping with 'path'")
        path, content = row.get("path"), row.get("content")
        place = PurePosixPath(path) if isinstance(path, str) and path and "\0" not in path else None
        if place is None or place.is_absolute() or ".." in place.parts:
            raise TaskError(f"{where}: test_scripts: {path!r} is not a path inside the working folder")
        if content is not None and not isinstance(content, str):
            raise TaskError(f"{where}: test_scripts: the content of '{path}' must be text")
        script = TestScript(path=str(place), content=_beside(folder, place) if content is None else content)
        found.setdefault(str(row.get("rubric_id", "all")), []).append(script)
    return found


def _beside(folder: Path, place: PurePosixPath) -> str | None:
    """A script whose content is a file of the task; None when it is only in the repository."""
    for file in (folder / place, folder / "evaluation" / place, folder / "repo" / place):
        if file.is_file() and file.resolve().is_relative_to(folder.resolve()):
            return read_small(file, _MOST_BYTES).decode(errors="replace")
    return None


def _by_rubric(scripts: Any, where: str) -> dict[str, Any]:
    if isinstance(scripts, list):
        return {"all": scripts} if scripts else {}
    if not isinstance(scripts, dict):
        raise TaskError(f"{where}: 'test_scripts' must be a mapping of rubric to scripts, or a list")
    return scripts


def _rubric(row: object, number: int, scripts: Mapping[str, Any], folder: Path, where: str) -> Rubric:
    if isinstance(row, str):
        row = {"description": row}
    if not isinstance(row, dict):
        raise TaskError(f"{where}: rubric {number} must be a mapping or a sentence")
    name = str(row.get("id", row.get("name", f"rubric-{number}")))
    weight = row.get("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
        raise TaskError(f"{where}: rubric '{name}': weight {weight!r} is not a number, zero or more")
    tests = row.get("tests", row.get("test_scripts", scripts.get(name, ())))
    tests = [tests] if isinstance(tests, str) else tests
    if not isinstance(tests, list | tuple) or not all(isinstance(each, str) for each in tests):
        raise TaskError(f"{where}: rubric '{name}': tests must be a list of scripts below tests/")
    for each in tests:
        script = folder / "tests" / str(each)
        if not script.resolve().is_relative_to(folder.resolve()) or not script.is_file():
            raise TaskError(f"{where}: rubric '{name}': tests/{each} is missing")
    said = next((row[key] for key in ("criterion", "description", "text") if row.get(key)), "")
    return Rubric(id=name, description=str(said), weight=float(weight), tests=tuple(map(str, tests)))
