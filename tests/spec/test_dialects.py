"""Older and shorter shapes: each loads, none of their keys is ignored, and errors keep their places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proctor.errors import SpecError
from proctor.model.spec import InstrumentSpec, Spec
from proctor.spec.dialects import modernise
from proctor.spec.load import from_mapping, load
from proctor.spec.node import from_plain, plain

FIXTURES = Path(__file__).parent / "fixtures"


def body(data: dict[str, Any]) -> Any:
    return from_mapping(data).experiments[0]


def test_an_experiment_given_as_a_mapping_is_the_body_itself() -> None:
    spec = load(FIXTURES / "older_nested.yaml")
    [only] = spec.experiments
    assert spec.name == "nested"
    assert (only.experiment, only.params, only.iterations.measured) == (
        "pragma_profile",
        {"profile": "balanced"},
        10,
    )
    assert only.instrumentation == (
        InstrumentSpec(name="psutil", options={"interval_ms": 200}),
        InstrumentSpec(name="timing"),
    )
    assert spec.tags == ("nightly",)


def test_counts_at_the_top_and_other_old_names_are_understood() -> None:
    spec = load(FIXTURES / "older_counts.yml")
    [only] = spec.experiments
    assert (only.iterations.warmup, only.iterations.measured) == (2, 7)
    assert (spec.output_dir, spec.seed, only.samples) == ("out", 0, None)
    assert spec.notes.startswith("Counts")
    assert [each.name for each in only.instrumentation] == ["cprofile"]


def test_a_sweep_block_with_its_strategy_inside_is_unpacked() -> None:
    [only] = load(FIXTURES / "older_sweep_block.json").experiments
    assert (only.strategy, only.samples, only.sweep) == ("random", 3, {"agents": (10, 20, 40, 80)})
    assert only.iterations.measured == "auto"
    assert [each.name for each in only.instrumentation] == ["psutil", "timing"]


def test_several_experiments_share_what_stands_at_the_top() -> None:
    spec = load(FIXTURES / "older_several.yaml")
    assert [each.experiment for each in spec.experiments] == [
        "memory_db",
        "spatial_comprehensive",
        "system_profiler",
    ]
    assert [each.iterations.measured for each in spec.experiments] == [3, 9, 3]
    assert [each.iterations.warmup for each in spec.experiments] == [1, 0, 1]


def test_experiments_keyed_by_name_are_a_list_too() -> None:
    spec = load(FIXTURES / "older_keyed.json")
    assert [(each.experiment, each.params) for each in spec.experiments] == [
        ("memory_db", {"num_agents": 100}),
        ("system_profiler", {}),
    ]


def test_a_rollouts_file_is_read_with_every_key() -> None:
    spec = load(FIXTURES / "older_rollouts.toml")
    [entry] = spec.tasks
    assert (spec.name, spec.parallel, spec.kind) == ("model_comparison", 4, "task")
    assert (entry.source, entry.path, entry.agents) == ("prepared_dir", "tasks/hello", ("oracle",))
    assert (entry.models, entry.rollouts) == (("openrouter/openai/gpt-5",), 5)
    assert entry.overrides == "tasks/hello/overrides.json"
    assert entry.environment_variables == {"TIMEOUT_SEC": "1800", "RETRIES": "3", "DEBUG": "true"}


@pytest.mark.parametrize(
    "tasks", ["a", ["a"], {"path": "a"}, [{"path": "a"}], [{"path": "a", "agents": ["oracle"]}]]
)
def test_one_task_may_be_written_shortly(tasks: Any) -> None:
    [entry] = from_mapping({"tasks": tasks}).tasks
    assert (entry.path, entry.source, entry.agents) == ("a", "path", ("oracle",))


def test_old_names_of_task_keys_work_at_the_top_and_in_entries() -> None:
    spec = from_mapping({"tasks": [{"path": "a", "env": {"A": 1}}], "models": ["m"], "agents": "nop"})
    assert (spec.tasks[0].models, spec.tasks[0].agents) == (("m",), ("nop",))
    assert spec.tasks[0].environment_variables == {"A": "1"}


@pytest.mark.parametrize(
    ("written", "options"),
    [
        (["psutil"], {}),
        (["timing", "psutil"], {}),
        ([{"psutil": {"interval_ms": 5}}], {"interval_ms": 5}),
        ([{"psutil": None}], {}),
        ([{"psutil": {}}], {}),
        ([{"name": "psutil", "interval_ms": 5}], {"interval_ms": 5}),
        ([{"name": "psutil", "options": {"interval_ms": 5}}], {"interval_ms": 5}),
        ([{"name": "psutil", "options": None}], {}),
        ([{"name": "psutil", "options": 5}], {"options": 5}),
        ([{"psutil": {"name": "x"}}], {"name": "x"}),
        ({"psutil": {"interval_ms": 5}}, {"interval_ms": 5}),
        ("psutil", {}),
    ],
)
def test_every_way_to_write_an_instrument(written: Any, options: dict[str, Any]) -> None:
    found = {
        each.name: each.options
        for each in body({"experiment": "a", "instrumentation": written}).instrumentation
    }
    assert found["psutil"] == options


@pytest.mark.parametrize(
    ("written", "warmup", "measured"),
    [
        ({"iterations": 7}, 0, 7),
        ({"iterations": "auto"}, 0, "auto"),
        ({"iterations": {"measured": "auto", "warmup": "auto"}}, "auto", "auto"),
        ({"iterations": 1e2}, 0, 100),
        ({"warmup_iterations": 3}, 3, 1),
        ({"warmup_iterations": 3, "iterations": 7}, 3, 7),
        ({"warmup_iterations": 3, "iterations": None}, 3, 1),
    ],
)
def test_every_way_to_write_iterations(written: dict[str, Any], warmup: Any, measured: Any) -> None:
    found = body({"experiment": "a", **written}).iterations
    assert (found.warmup, found.measured) == (warmup, measured)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"experiment": {"params": {}}}, "the experiment has no name"),
        ({"experiment": {"name": "a", "seed": 1}, "seed": 2}, "'seed' means the same as 'seed'"),
        (
            {"experiment": "a", "iterations": 3, "measured_iterations": 4},
            "'measured_iterations' means the same",
        ),
        (
            {"experiment": "a", "iterations": [3], "warmup_iterations": 4},
            "needs 'iterations' to be a mapping",
        ),
        ({"experiment": "a", "params": {}, "parameters": {}}, "'parameters' means the same as 'params'"),
        ({"experiment": "a", "sweep": {"params": {"n": [1]}, "mode": 1}}, "'mode' is not a key here"),
        ({"experiment": {"name": "a", "rounds": 3}}, "'rounds' is not a key here"),
        ({"experiments": {"a": 5}}, "expected a mapping, found the number 5"),
        ({"experiments": {"a": {"experiment": "b"}}}, "means the same as 'experiment'"),
        ({"experiments": [{"slug": "a", "name": "b"}]}, "'name' belongs at the top"),
        ({"tasks": ["a"], "sandbox": {"memory_mb": "x"}}, "'memory_mb' is not a key here"),
        ({"tasks": ["a"], "sandbox": {"memory_mb": 1, "memory_bytes": 1}}, "'memory_mb' means the same"),
        ({"tasks": [5]}, "expected a mapping, found the number 5"),
    ],
)
def test_an_old_shape_that_makes_no_sense_is_an_error(data: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        from_mapping(data)


def test_an_error_in_an_old_shape_points_at_its_own_line(tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    path.write_text("experiment:\n  name: a\n  iterations: 0\n")
    with pytest.raises(SpecError, match=r"old.yaml:3:15: 'measured': expected at least 1, found 0"):
        load(path)
    path.write_text("experiment: a\nmeasured_iterations: x\n")
    with pytest.raises(SpecError, match=r"old.yaml:2:22: 'measured': expected a whole number or 'auto'"):
        load(path)


@pytest.mark.parametrize("path", sorted(FIXTURES.iterdir()), ids=lambda path: path.name)
def test_rewriting_twice_changes_nothing(path: Path) -> None:
    spec = load(path)
    root = from_plain(spec.to_mapping())
    modernise(root)
    once = plain(root)
    modernise(root)
    assert plain(root) == once
    again: Spec = from_mapping(once)
    assert again == spec


def test_what_is_no_mapping_is_left_for_the_grammar_to_refuse() -> None:
    root = from_plain([1])
    modernise(root)
    assert plain(root) == [1]
