"""`proctor new`: scaffold something that works at once and is meant to be edited, from `new_files/`."""

from __future__ import annotations

import json
import keyword
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from proctor.errors import Exit, UsageError

_FILES = Path(__file__).with_name("new_files")
_EXPERIMENT_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_TASK_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_NOT_DISCOVERED = ("conftest", "setup")
_specs = click.option(
    "--specs",
    type=click.Path(path_type=Path),
    default="specs",
    show_default=True,
    help="Folder for the spec.",
)


@click.group("new")
def command() -> None:
    """Write the first files of an experiment or a task."""


@command.command("experiment")
@click.argument("name")
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path), default="experiments.d", show_default=True,
    help="Folder for the experiment and its test.",
)  # fmt: skip
@_specs
def experiment(name: str, folder: Path, specs: Path) -> int:
    """Write an experiment called NAME, a spec that runs it and a test that passes."""
    _check_experiment_name(name)
    spec, test = specs / f"{name}.yaml", folder / f"test_{name}.py"
    values = {
        "name": name,
        "class_name": "".join(part.capitalize() for part in name.split("_")) or name,
        "sources": json.dumps(os.path.relpath(folder, specs)),
        "spec": str(spec),
    }
    sources = {folder / f"{name}.py": "experiment.py.txt", spec: "spec.yaml", test: "test.py.txt"}
    _write_all({path: _filled(_FILES / "experiment" / source, values) for path, source in sources.items()})
    _say_next(f"pytest {test}", f"proctor list {name} --experiments {folder}", f"proctor run {spec}")
    return Exit.OK


@command.command("task")
@click.argument("name")
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path), default="tasks", show_default=True,
    help="Folder in which to make the task's folder.",
)  # fmt: skip
@_specs
def task(name: str, folder: Path, specs: Path) -> int:
    """Write a task called NAME that the oracle passes and nop fails, and a spec that shows it."""
    if not _TASK_NAME.fullmatch(name):
        near = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:64]
        hint = f"; try '{near}'" if _TASK_NAME.fullmatch(near) else ""
        raise UsageError(
            f"'{name}' is not a valid name: use a-z, 0-9, '.', '_', '-', a letter or digit first{hint}"
        )
    place, spec = folder / name, specs / f"{name}.toml"
    _refuse_existing([place])
    values = {"name": name, "spec": str(spec), "path": os.path.relpath(place, specs)}
    root = _FILES / "task"
    sources = {place / each.relative_to(root): each for each in sorted(root.rglob("*")) if each.is_file()}
    sources[place / "tests/ledger.csv"] = root / "environment/ledger.csv"
    sources[spec] = _FILES / "task_spec.toml"
    _write_all({path: _filled(source, values) for path, source in sources.items()})
    _say_next(f"proctor run {spec}        # oracle passes, nop fails", f"proctor tasks check {place}")
    return Exit.OK


def _check_experiment_name(name: str) -> None:
    if not _EXPERIMENT_NAME.fullmatch(name) or keyword.iskeyword(name):
        near = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:64]
        hint = f"; try '{near}'" if _EXPERIMENT_NAME.fullmatch(near) and not keyword.iskeyword(near) else ""
        raise UsageError(
            f"'{name}' is not a valid name: use lower-case letters, digits and '_', a letter first{hint}"
        )
    if name.startswith("test_") or name in _NOT_DISCOVERED:
        raise UsageError(f"'{name}' cannot be used: files with this name are not searched for experiments")
    from proctor.experiments.discover import discover

    taken = discover().experiments.get(name)
    if taken:
        raise UsageError(f"'{name}' is already an experiment, at {taken.place}; choose another name")


def _filled(file: Path, values: Mapping[str, str]) -> str:
    """The text of a file, with a value for each `@word@`."""
    return re.sub(r"@(\w+)@", lambda match: values[match[1]], file.read_text(encoding="utf-8"))


def _refuse_existing(paths: Sequence[Path]) -> None:
    for path in paths:
        if path.exists() or path.is_symlink():
            raise UsageError(f"{path} exists; nothing was written. Choose another name or remove it first")


def _write_all(contents: Mapping[Path, str]) -> None:
    """All or none: nothing is written when one of the files exists."""
    _refuse_existing(list(contents))
    written: list[Path] = []
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                written.append(path)
                file.write(content)
            if path.suffix == ".sh":
                path.chmod(0o755)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        raise UsageError(
            f"{error.filename}: cannot be written: {error.strerror}; nothing was kept"
        ) from error
    for path in written:
        print(f"wrote {path}")


def _say_next(*commands: str) -> None:
    print("\nNext:")
    for each in commands:
        print(f"  {each}")
