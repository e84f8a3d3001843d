from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from proctor.errors import SpecError, UsageError
from proctor.model.spec import Spec
from proctor.spec.command_line import (
    pairs,
    short_mapping,
    spec_mapping,
    toml_text,
)
from proctor.spec.load import from_mapping, load
from proctor.spec.override import typed_value


def read_back(spec: Spec, folder: Path) -> Spec:
    (folder / "spec.toml").write_text(toml_text(short_mapping(spec)))
    return load(folder / "spec.toml")


@pytest.mark.parametrize(
    "line",
    [
        spec_mapping(tasks=("tasks/a",), agent=("oracle",)),
        spec_mapping(tasks=("a.zip", "b"), agent=("oracle", "nop"), model=("m/1", "m/2"), rollouts=5),
        spec_mapping(
            (), datasets=("set@1.0", "git+https://host/r.git@main#x"), agent=("my:Agent",), timeout_s=1.5
        ),
        spec_mapping(
            tasks=("ü/'\"\\\n",),
            agent=("command",),
            include=("a*", "b"),
            exclude=("c",),
            environment_variables={"KEY": "va=l\tue", "ODD.KEY": ""},
            agent_options={"command": "x {y}", "n": 3, "deep": {"list": [1, 2.5, True, "x"]}},
            name="mine",
        ),
    ],
)
@pytest.mark.parametrize("overrides", [(), ("rollouts=7", "sandbox.network=none", "seed=3", "tags=[a, b]")])
def test_a_line_is_a_spec_that_reads_back_the_same(line, overrides, tmp_path):
    spec = from_mapping(line, base_dir=str(tmp_path), overrides=overrides)
    assert read_back(spec, tmp_path) == spec
    assert from_mapping(short_mapping(spec)) == spec


def test_what_is_not_said_is_not_in_the_spec():
    assert spec_mapping(tasks=("tasks/a",), agent=("oracle",)) == {
        "name": "a",
        "agent": ["oracle"],
        "tasks": [{"path": "tasks/a"}],
    }


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (spec_mapping(tasks=("tasks/hello/",)), "hello"),
        (spec_mapping(tasks=("x/hello.zip", "b", "c")), "hello+2 more"),
        (spec_mapping((), datasets=("org/set@2.0",)), "set@2.0"),
        (spec_mapping(tasks=("git+https://h/o/repo.git@main#tasks/one",)), "one"),
        (spec_mapping((), datasets=("git+https://me:pw@h/o/repo.git@main",)), "repo"),
        (spec_mapping(tasks=(".",)), "spec"),
    ],
)
def test_a_run_is_named_after_its_first_tasks(line, name):
    assert line["name"] == name


def test_zips_paths_and_datasets_have_keys_of_their_own():
    line = spec_mapping(tasks=("a.ZIP", "b", "git+file:///r@main"), datasets=("d@1",))
    assert line["tasks"] == [
        {"zip": "a.ZIP"},
        {"path": "b"},
        {"dataset": "git+file:///r@main"},
        {"dataset": "d@1"},
    ]


def test_pairs_are_split_at_the_first_equals_sign():
    assert pairs("--env", ["A=b=c", "B="]) == {"A": "b=c", "B": ""}
    with pytest.raises(UsageError, match="--env A: expected KEY=VALUE"):
        pairs("--env", ["A"])


def test_values_of_options_have_the_types_that_set_gives_them():
    assert [typed_value("x", each) for each in ("3", "true", "[1, a]", "word", "")] == [
        3,
        True,
        [1, "a"],
        "word",
        "",
    ]
    with pytest.raises(SpecError, match="--agent-option k"):
        typed_value("--agent-option k", "[1")


def test_experiments_are_written_as_toml_too(tmp_path):
    written = tmp_path / "a.yaml"
    written.write_text(
        "experiments:\n- experiment: x\n  params: {n: 1, s: {deep: [1]}}\n  iterations: {measured: auto}\n"
        "  instrumentation: [timing, {name: psutil, interval_ms: 5}]\n- experiment: y\n"
        "gates: [{metric: p50, max: 3}]\nretries: 1\n"
    )
    spec = load(written)
    assert read_back(spec, tmp_path) == spec
    assert tomllib.loads(toml_text(short_mapping(spec)))["experiments"][1] == {"experiment": "y"}


def test_a_value_that_toml_cannot_hold_is_named(tmp_path):
    written = tmp_path / "a.yaml"
    written.write_text("experiment: x\nparams: {n: null}\n")
    with pytest.raises(UsageError, match="TOML cannot express"):
        toml_text(short_mapping(load(written)))
