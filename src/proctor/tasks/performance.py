"""`[verifier.performance]` of a `task.toml`: the program is measured against the author's after the tests."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Literal, cast, get_args

from proctor.errors import TaskError
from proctor.model.task import PerformanceMetric, PerformanceSpec
from proctor.tasks.toml_file import Table, TomlFile

FEWEST_ROUNDS = 6
MOST_ROUNDS = 200
_WHERE = "[verifier.performance]"


def performance_of(file: TomlFile, verifier: Table, folder: Path) -> PerformanceSpec | None:
    """The table of a task's verifier; None where it has none."""
    if "performance" not in verifier:
        return None
    table = file.table(verifier, "performance")
    file.known(_WHERE, table)
    if not isinstance(table.get("command"), str) or not table["command"].strip():
        raise file.wrong("command", table.get("command"), f"a command line in {_WHERE}", table)
    metric = _metric(file, table)
    return PerformanceSpec(
        command=table["command"],
        reference=_reference(file, table, folder),
        metric=metric,
        direction=_direction(file, table, metric),
        rounds=_rounds(file, table),
        target=_target(file, table),
        precision=_precision(file, table),
        inputs=_line(file, table, "inputs"),
        check=_line(file, table, "check"),
        timeout_s=file.positive(table, "timeout_sec", 60.0),
    )


def _metric(file: TomlFile, table: Table) -> PerformanceMetric:
    found = table.get("metric", "time")
    if found not in get_args(PerformanceMetric):
        raise file.wrong("metric", found, "time, cpu, memory or custom", table)
    return cast("PerformanceMetric", found)


def _direction(file: TomlFile, table: Table, metric: PerformanceMetric) -> Literal["lower", "higher"]:
    found = table.get("direction", "lower")
    if found not in {"lower", "higher"}:
        raise file.wrong("direction", found, "lower or higher", table)
    if found == "higher" and metric != "custom":
        raise file.wrong("direction", found, f"lower: less {metric} is better", table)
    return cast("Literal['lower', 'higher']", found)


def _reference(file: TomlFile, table: Table, folder: Path) -> Path:
    """The folder of the author's program, which is in the task and not in what its agent sees."""
    found = table.get("reference")
    if found is None:
        raise TaskError(
            f"{file.place('performance', table)}: {_WHERE} has no 'reference'; name the folder of the task "
            "that has the author's program"
        )
    path = PurePosixPath(str(found))
    if not isinstance(found, str) or path.is_absolute() or ".." in path.parts or not path.parts:
        raise file.wrong("reference", found, "the relative path of a folder of the task", table)
    if path.parts[0] == "environment":
        raise file.wrong("reference", found, "outside of environment/, which the agent sees", table)
    place = folder / path
    if not place.is_dir() or not any(place.iterdir()):
        raise TaskError(f"{file.place('reference', table)}: {place}: no such folder, or it is empty")
    return place


def _rounds(file: TomlFile, table: Table) -> int:
    found = file.number(table, "rounds")
    if found is None:
        return 15
    if found != int(found) or not FEWEST_ROUNDS <= found <= MOST_ROUNDS:
        wanted = f"a whole number between {FEWEST_ROUNDS} and {MOST_ROUNDS}"
        raise file.wrong("rounds", table["rounds"], wanted, table)
    return int(found)


def _target(file: TomlFile, table: Table) -> float:
    found = file.number(table, "target")
    if found is not None and not 1 < found <= 1e6:
        raise file.wrong("target", found, "more than 1: how many times better than the reference", table)
    return found or 2.0


def _precision(file: TomlFile, table: Table) -> float:
    found = file.number(table, "precision")
    if found is not None and not 0 < found < 1:
        raise file.wrong("precision", found, "between 0 and 1", table)
    return found or 0.1


def _line(file: TomlFile, table: Table, key: str) -> str:
    found = table.get(key, "")
    if not isinstance(found, str):
        raise file.wrong(key, found, "a command line", table)
    return found
