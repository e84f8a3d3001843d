"""The published schema and the loader agree: what one takes, the other takes."""

from __future__ import annotations

import json
import re
import shlex
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from proctor.errors import SpecError
from proctor.spec import bodies, dialects, grammar
from proctor.spec.load import from_mapping, load, written

SCHEMA = json.loads((files("proctor.spec") / "schema.json").read_text())
FIXTURES = sorted((Path(__file__).parent / "fixtures").iterdir())
GOOD: list[dict[str, Any]] = [
    {"experiment": "a"},
    {"experiment": "a", "iterations": 3, "instrumentation": "timing", "tags": "x", "$schema": "s"},
    {
        "experiment": "a",
        "iterations": {"measured": "auto", "max_time_s": 2.5},
        "loops": "auto",
        "gc": "enabled",
    },
    {"experiment": "a", "strategy": "random", "samples": 3, "sweep": {"n": [1, 2, [3]]}},
    {"experiment": "a", "samples": None, "output_dir": None, "timeout_s": 5, "retries": 2, "budget_usd": 0},
    {"experiment": "a", "instrumentation": [{"psutil": {"interval_ms": 5}}, {"name": "cprofile", "top": 5}]},
    {"experiments": ["a", {"experiment": "b", "params": {"n": None}}], "isolation": "none"},
    {"experiments": {"a": None, "b": {"iterations": 2}}},
    {"tasks": "a"},
    {"tasks": {"zip": "a.zip"}, "agents": ["oracle", "nop"], "rollouts": 4},
    {
        "tasks": [
            {"dataset": "d", "include": "x*", "model": [None, "m"], "env": {"A": 1}, "sweep": {"B": ["x", 2]}}
        ]
    },
    {"tasks": ["a"], "sandbox": "podman", "gates": "score >= 0.5", "engine": "celery", "sources": "mine"},
    {"tasks": ["a"], "sandbox": {"memory_mb": 5, "network": "allowlist", "allowed_hosts": "h"}},
    {
        "tasks": [{"path": "a", "apply_overrides": "no", "overrides": {"repo": {}}}],
        "retries": {"provider": 1},
    },
]
BAD: list[dict[str, Any]] = [
    {},
    {"seed": 1},
    {"experiment": ""},
    {"experiment": 5},
    {"experiment": "a", "tasks": ["b"]},
    {"experiment": "a", "seeds": 1},
    {"experiment": "a", "rollouts": 1},
    {"experiment": "a", "seed": -1},
    {"experiment": "a", "seed": "1"},
    {"experiment": "a", "parallel": 0},
    {"experiment": "a", "name": "../x"},
    {"experiment": "a", "iterations": 0},
    {"experiment": "a", "iterations": {"measured": 0}},
    {"experiment": "a", "iterations": {"mesured": 1}},
    {"experiment": "a", "instrumentation": [5]},
    {"experiment": "a", "instrumentation": [{"a": 1, "b": 2}]},
    {"experiment": "a", "sweep": {"n": 3}},
    {"experiment": "a", "sweep": {"n": []}},
    {"experiment": "a", "strategy": "some"},
    {"experiment": "a", "timeout_s": 0},
    {"experiment": "a", "engine": "ray"},
    {"experiment": "a", "retries": -1},
    {"experiment": "a", "gc": True},
    {"experiments": []},
    {"experiments": [{"params": {}}]},
    {"experiments": [{"experiment": "a", "seed": 1}]},
    {"experiments": ["a"], "params": {}},
    {"tasks": []},
    {"tasks": [{}]},
    {"tasks": [{"path": "a", "zip": "b"}]},
    {"tasks": [{"path": "a", "rollouts": 0}]},
    {"tasks": [{"path": "a", "agent": []}]},
    {"tasks": [{"path": "a", "agent": ["x", "x"]}]},
    {"tasks": [{"path": "a", "environment_variables": {"A": []}}]},
    {"tasks": [{"path": "a", "environment_variables": {"A": None}}]},
    {"tasks": ["a"], "sandbox": {"cpus": 0}},
    {"tasks": ["a"], "sandbox": {"gpu": 1}},
    {"tasks": ["a"], "iterations": 5},
]


def fits(data: dict[str, Any]) -> bool:
    return bool(jsonschema.Draft7Validator(SCHEMA).is_valid(data))


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("data", GOOD, ids=json.dumps)
def test_both_take_a_good_spec(data: dict[str, Any]) -> None:
    from_mapping(data)
    assert fits(data)


@pytest.mark.parametrize("data", BAD, ids=json.dumps)
def test_both_refuse_a_bad_spec(data: dict[str, Any]) -> None:
    assert not fits(data)
    with pytest.raises(SpecError):
        from_mapping(data)


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.name)
def test_older_files_fit_the_schema_as_they_were_written(path: Path) -> None:
    data = {key: value for key, value in written(path).items() if value is not None}
    jsonschema.Draft7Validator(SCHEMA).validate(data)


def test_the_schema_has_every_key_of_the_grammar() -> None:
    definitions = SCHEMA["definitions"]
    single, several, tasks = (
        definitions[f"{kind}_spec"]["properties"] for kind in ("experiment", "experiments", "tasks")
    )
    for known in (single, several, tasks):
        assert set(grammar.SHARED_KEYS) | set(dialects.TOP_NAMES) <= set(known)
    assert set(bodies.EXPERIMENT_KEYS) | set(dialects.BODY_NAMES) | set(dialects.BODY_MOVES) <= set(single)
    assert set(bodies.EXPERIMENT_DEFAULTS) <= set(several)
    assert set(bodies.TASK_DEFAULTS) | set(dialects.TASK_NAMES) <= set(tasks)
    assert set(bodies.TASK_KEYS) <= set(definitions["task_entry"]["properties"])


REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "spec.md"


def test_every_example_of_the_reference_loads(tmp_path: Path) -> None:
    examples = re.findall(r"^```(yaml|toml|json)\n(.*?)^```", REFERENCE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(examples) >= 3
    for suffix, text in examples:
        path = tmp_path / f"example.{suffix}"
        path.write_text(text)
        load(path)
        assert fits(written(path))


def test_the_overrides_of_the_reference_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "example.yaml"
    path.write_text("experiments: [a]\n")
    [line] = re.findall(r"^--set .*$", REFERENCE.read_text(), re.MULTILINE)
    overrides = [word for word in shlex.split(line) if word != "--set"]
    load(path, overrides=[each for each in overrides if not each.startswith("tasks")])
    path.write_text("tasks: [a]\n")
    load(path, overrides=[each for each in overrides if each.startswith(("tasks", "seed", "notes"))])


def test_the_reference_has_every_key_of_the_grammar() -> None:
    reference = REFERENCE.read_text()
    keys = {
        *grammar.SHARED_KEYS,
        *bodies.EXPERIMENT_KEYS,
        *bodies.TASK_KEYS,
        *grammar._SANDBOX,
        *grammar._RETRIES,
    }
    old = {
        *dialects.TOP_NAMES,
        *dialects.BODY_NAMES,
        *dialects.TASK_NAMES,
        *dialects.BODY_MOVES,
        *dialects.MEGABYTES,
    }
    for key in keys | old | set(bodies._ITERATIONS):
        assert f"`{key}`" in reference, key
