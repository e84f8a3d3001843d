"""`proctor new`: scaffold something that works at once and is meant to be edited."""

from __future__ import annotations

import json
import keyword
import os
import re
from pathlib import Path

import click

from proctor.cli import new_task
from proctor.errors import Exit, UsageError

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_NOT_DISCOVERED = ("conftest", "setup")

_EXPERIMENT = '''\
"""Count the words of a text: replace this by the code that you want to measure."""

import random
from collections import Counter

from proctor import Experiment, register_experiment


@register_experiment("{name}", summary="Count the words of a text", tags=("example",))
class {class_name}(Experiment):
    """Counts how often each word occurs, in one of two ways."""

    param_schema = {{
        "words": {{"type": "int", "default": 2000, "minimum": 1, "description": "length of the text"}},
        "method": {{"type": "str", "default": "counter", "choices": ["counter", "loop"]}},
    }}

    def setup(self, context):
        """Make the text. Not timed; the same seed gives the same text."""
        pick = random.Random(context.seed)
        self.text = [f"w{{pick.randrange(100)}}" for _ in range(self.params["words"])]

    def execute_once(self, context):
        """The timed part. What it returns is aggregated like the durations."""
        counts = Counter(self.text) if self.params["method"] == "counter" else count_by_loop(self.text)
        return {{"distinct": len(counts), "most": max(counts.values())}}


def count_by_loop(text):
    """The plain way."""
    counts = {{}}
    for word in text:
        counts[word] = counts.get(word, 0) + 1
    return counts
'''

_SPEC = """\
# Run:  proctor run {spec}
experiment: {name}
sources: {sources}
params:
  words: 2000
sweep:
  method: [counter, loop]
iterations:
  warmup: 2
  measured: 10
loops: auto            # short functions: calibrated, and the result is per call
instrumentation: [timing]
seed: 1
tags: [example]
"""

_TEST = '''\
"""These tests check that the measured code is correct."""

from pathlib import Path

import pytest

from proctor import ExperimentContext
from proctor.errors import ParamError
from proctor.experiments.describe import instantiate
from proctor.experiments.discover import find

HERE = Path(__file__).parent


def run_once(**params):
    experiment = instantiate(find("{name}", [str(HERE / "{name}.py")]), params)
    context = ExperimentContext(seed=1)
    experiment.setup(context)
    try:
        return experiment.execute_once(context)
    finally:
        experiment.teardown(context)


def test_both_methods_give_the_same_answer():
    assert run_once(words=500, method="counter") == run_once(words=500, method="loop")


def test_every_word_is_counted():
    assert run_once(words=1) == {{"distinct": 1, "most": 1}}


def test_an_unknown_method_is_refused():
    with pytest.raises(ParamError):
        run_once(method="guess")
'''


@click.group("new")
def command() -> None:
    """Write the first files of an experiment or a task."""


command.add_command(new_task.command)


@command.command("experiment")
@click.argument("name")
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path), default="experiments.d", show_default=True,
    help="Folder for the experiment and its test.",
)  # fmt: skip
@click.option(
    "--specs", type=click.Path(path_type=Path), default="specs", show_default=True,
    help="Folder for the spec.",
)  # fmt: skip
def experiment(name: str, folder: Path, specs: Path) -> int:
    """Write an experiment called NAME, a spec that runs it and a test that passes."""
    _check_name(name)
    spec = specs / f"{name}.yaml"
    values = {
        "name": name,
        "class_name": "".join(part.capitalize() for part in name.split("_")) or name,
        "sources": json.dumps(os.path.relpath(folder, specs)),
        "spec": spec,
    }
    contents = {
        folder / f"{name}.py": _EXPERIMENT,
        spec: _SPEC,
        folder / f"test_{name}.py": _TEST,
    }
    write_all({path: content.format(**values) for path, content in contents.items()})
    for path in contents:
        print(f"wrote {path}")
    print("\nNext:")
    print(f"  pytest {folder / f'test_{name}.py'}")
    print(f"  proctor list {name} --experiments {folder}")
    print(f"  proctor run {spec}")
    return Exit.OK


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        near = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:64]
        hint = f"; try '{near}'" if _NAME.fullmatch(near) and not keyword.iskeyword(near) else ""
        raise UsageError(
            f"'{name}' is not a valid name: use lower-case letters, digits and '_', a letter first{hint}"
        )
    if name.startswith("test_") or name in _NOT_DISCOVERED:
        raise UsageError(f"'{name}' cannot be used: files with this name are not searched for experiments")
    from proctor.experiments.discover import discover

    taken = discover().experiments.get(name)
    if taken:
        raise UsageError(f"'{name}' is already an experiment, at {taken.place}; choose another name")


def write_all(contents: dict[Path, str]) -> None:
    """All or none: nothing is written when one of the files exists."""
    for path in contents:
        if path.exists() or path.is_symlink():
            raise UsageError(f"{path} exists; nothing was written. Choose another name or remove it first")
    written: list[Path] = []
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                written.append(path)
                file.write(content)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        raise UsageError(
            f"{error.filename}: cannot be written: {error.strerror}; nothing was kept"
        ) from error
