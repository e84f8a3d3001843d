"""`--set`: paths, indexes, values, and errors that name the override."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.errors import SpecError
from proctor.model.spec import Spec
from proctor.spec.load import load

SINGLE = (
    "experiment: a\nparams: {n: 1}\niterations: {warmup: 2, measured: 5}\ninstrumentation: [timing, psutil]\n"
)
SEVERAL = "experiments:\n- experiment: a\n  iterations: 5\n- b\n"
TASKS = "tasks:\n- path: x\n  rollouts: 2\n- y\nsandbox: podman\n"


def changed(folder: Path, text: str, *overrides: str) -> Spec:
    path = folder / "spec.yaml"
    path.write_text(text)
    return load(path, overrides=overrides)


def test_a_nested_key_is_set_and_its_neighbours_stay(tmp_path: Path) -> None:
    iterations = changed(tmp_path, SINGLE, "iterations.measured=20").experiments[0].iterations
    assert (iterations.warmup, iterations.measured) == (2, 20)


def test_values_are_read_as_yaml(tmp_path: Path) -> None:
    spec = changed(
        tmp_path,
        SINGLE,
        "params.n=[1, 2]",
        "params.text=hello world",
        'params.map={"a": [1.5, null]}',
        "params.flag=true",
        "tags=[x, y]",
        "notes='a: b'",
    )
    assert spec.experiments[0].params == {
        "n": [1, 2],
        "text": "hello world",
        "map": {"a": [1.5, None]},
        "flag": True,
    }
    assert (spec.tags, spec.notes) == (("x", "y"), "a: b")


def test_later_overrides_win_and_an_empty_value_is_the_default(tmp_path: Path) -> None:
    assert changed(tmp_path, SINGLE, "seed=1", "seed=2").seed == 2
    assert changed(tmp_path, SINGLE, "seed=1", "seed=").seed == 0


def test_entries_of_lists_are_reached_by_number(tmp_path: Path) -> None:
    spec = changed(tmp_path, TASKS, "tasks.1.rollouts=7", "tasks.0.environment_variables.A=1.10")
    assert [entry.rollouts for entry in spec.tasks] == [2, 7]
    assert spec.tasks[0].environment_variables == {"A": "1.10"}


def test_an_instrument_is_reached_by_number_whatever_its_shape(tmp_path: Path) -> None:
    spec = changed(tmp_path, SINGLE, "instrumentation.1.interval_ms=50", "instrumentation.0=cprofile")
    assert [(each.name, dict(each.options)) for each in spec.experiments[0].instrumentation] == [
        ("cprofile", {}),
        ("psutil", {"interval_ms": 50}),
    ]


def test_a_key_of_a_body_is_set_in_every_body(tmp_path: Path) -> None:
    spec = changed(tmp_path, SEVERAL, "iterations.measured=9", "params.n=3")
    assert [body.iterations.measured for body in spec.experiments] == [9, 9]
    assert [body.params for body in spec.experiments] == [{"n": 3}, {"n": 3}]
    assert [entry.rollouts for entry in changed(tmp_path, TASKS, "rollouts=4").tasks] == [4, 4]


def test_an_empty_value_also_takes_back_what_stands_at_the_top_for_all(tmp_path: Path) -> None:
    shared = TASKS + "agents: [x, y]\n"
    assert changed(tmp_path, shared).tasks[1].agents == ("x", "y")
    assert changed(tmp_path, shared, "agent=").tasks[1].agents == ("oracle",)


@pytest.mark.parametrize("override", ["parallelism=3", "parallel=3"])
def test_old_names_work_in_overrides_over_old_and_new_names_in_files(tmp_path: Path, override: str) -> None:
    for name in ("parallel", "parallelism"):
        assert changed(tmp_path, f"experiment: a\n{name}: 2\n", override).parallel == 3


def test_old_paths_mean_their_present_ones(tmp_path: Path) -> None:
    spec = changed(tmp_path, SINGLE, "warmup_iterations=7", "parameters.n=5")
    assert (spec.experiments[0].iterations.warmup, spec.experiments[0].params["n"]) == (7, 5)
    assert (
        changed(tmp_path, SEVERAL, "experiments.1.measured_iterations=8").experiments[1].iterations.measured
        == 8
    )
    assert changed(tmp_path, TASKS, "tasks.0.env.A=b").tasks[0].environment_variables == {"A": "b"}


def test_a_short_form_in_the_file_can_be_opened_up(tmp_path: Path) -> None:
    sandbox = changed(tmp_path, TASKS, "sandbox.memory_mb=64", "sandbox.network=public").sandbox
    assert (sandbox.backend, sandbox.memory_bytes, sandbox.network) == ("podman", 64 << 20, "public")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("rollout=3", "--set rollout=3: 'rollout' is not a key here; did you mean 'rollouts'?"),
        ("tasks.0.rollots=3", "'rollots' is not a key here; did you mean 'rollouts'?"),
        ("tasks.2.rollouts=3", "'2' is not an entry of the list 'tasks'; its entries are 0 to 1"),
        ("tasks.-1.rollouts=3", "'-1' is not an entry of the list 'tasks'"),
        ("tasks.x.rollouts=3", "'x' is not an entry of the list 'tasks'"),
        ("tasks.9=3", "'9' is not an entry of the list 'tasks'"),
        ("tasks.0.path.x=3", "'tasks.0.path' is the text 'x'; it has no keys to set"),
        ("tasks.0.path.x.y=3", "'tasks.0.path' is the text 'x'; it has no keys to set"),
        (
            "tasks.0.rollouts=many",
            "--set tasks.0.rollouts=many: expected a whole number, found the text 'many'",
        ),
        ("tags=[a, {b: 1}]", "expected one value, found a mapping"),
        ("rollouts", "expected a path, '=' and a value"),
        ("=3", "expected a path, '=' and a value"),
        ("a..b=3", "expected a path, '=' and a value"),
        ("notes=[", "not valid YAML.*put the value in quotes"),
        (".".join("a" * 100) + "=1", "the path is deeper than"),
        ("notes=" + "x" * 500 + ": y: z", "…: .*put the value in quotes"),
    ],
)
def test_a_bad_override_is_named_in_its_error(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(SpecError, match=message.replace("?", r"\?")) as caught:
        changed(tmp_path, TASKS, override)
    assert str(caught.value).startswith("--set ")
    assert len(str(caught.value)) < 400


def test_an_empty_list_says_that_it_is_empty(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="'tags'; it is empty"):
        changed(tmp_path, "experiment: a\ntags: []", "tags.0=x")


def test_a_file_that_is_no_mapping_stays_the_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="found a list"):
        changed(tmp_path, "- 1", "seed=1")
