"""From spec to trials: stable keys, stable seeds, a sensible order, nothing dropped without a word."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import NotFoundError, ParamError, SpecError, UsageError
from proctor.model.plan import Plan
from proctor.model.spec import Spec
from proctor.model.subject import ExperimentInfo, ParamInfo
from proctor.plan import expand as expand_module
from proctor.plan.expand import expand
from proctor.spec.load import from_mapping, load


@dataclass(frozen=True)
class FakeTask:
    name: str
    digest: str
    path: Path = Path("somewhere")


INFO = ExperimentInfo(
    slug="demo",
    digest="digest-of-demo",
    params={
        "n": ParamInfo(name="n", type="int", default=1),
        "rate": ParamInfo(name="rate", type="float", default=0.5),
    },
)
KNOWN = {"demo": INFO, "other": replace(INFO, slug="other", digest="digest-of-other")}


def planned(data: dict[str, Any]) -> Plan:
    return expand(from_mapping(data), experiments=KNOWN)


def keys(data: dict[str, Any]) -> list[str]:
    return [trial.key for trial in planned(data).trials]


def rolled(data: dict[str, Any], *tasks: Sequence[FakeTask], **versions: str) -> Plan:
    return expand(from_mapping(data), tasks=tasks, agent_versions=[versions] * len(tasks))


def test_a_sweep_gives_one_trial_for_each_point_in_order() -> None:
    plan = planned({"experiment": "demo", "params": {"n": [3, 1, 2]}})
    assert [trial.params for trial in plan.trials] == [{"n": n, "rate": 0.5} for n in (3, 1, 2)]
    assert [trial.index for trial in plan.trials] == [0, 1, 2]
    assert {trial.subject for trial in plan.trials} == {"demo"}
    assert {trial.subject_digest for trial in plan.trials} == {"digest-of-demo"}
    assert plan.warnings == ()


def test_writing_out_a_default_does_not_move_the_key() -> None:
    assert keys({"experiment": "demo"}) == keys({"experiment": "demo", "params": {"n": 1, "rate": 0.5}})
    assert keys({"experiment": "demo"}) == keys(
        {"experiment": "demo", "iterations": 1, "instrumentation": "timing"}
    )


@pytest.mark.parametrize(
    "change",
    [
        {"params": {"n": 2}},
        {"seed": 1},
        {"iterations": 2},
        {"iterations": {"warmup": 1}},
        {"instrumentation": ["timing", "psutil"]},
        {"isolation": "none"},
        {"loops": 5},
        {"gc": "enabled"},
        {"timeout_s": 3},
        {"experiment": "other"},
    ],
)
def test_what_can_change_the_answer_moves_the_key(change: dict[str, Any]) -> None:
    assert keys({"experiment": "demo"}) != keys({"experiment": "demo", **change})


@pytest.mark.parametrize(
    "change",
    [
        {"name": "x"},
        {"tags": ["x"]},
        {"notes": "x"},
        {"parallel": 8},
        {"output_dir": "x"},
        {"retries": 9},
        {"budget_usd": 1},
        {"engine": "celery"},
        {"sandbox": "podman"},
        {"gates": ["x"]},
        {"sources": ["x"]},
        {"base_dir": "x"},
        {"params": {"n": 1}},
    ],
)
def test_what_cannot_change_the_answer_does_not_move_the_key(change: dict[str, Any]) -> None:
    assert keys({"experiment": "demo"}) == keys({"experiment": "demo", **change})


def test_a_changed_experiment_moves_its_keys() -> None:
    spec = from_mapping({"experiment": "demo"})
    changed = expand(spec, experiments={"demo": replace(INFO, digest="new")})
    assert changed.trials[0].key != expand(spec, experiments=KNOWN).trials[0].key


def test_keys_and_seeds_never_change() -> None:
    """A frozen example: stored runs would otherwise no longer be recognised."""
    [trial] = planned(
        {"experiment": "demo", "params": {"n": 5}, "iterations": {"warmup": 1}, "seed": 3}
    ).trials
    assert (trial.seed, trial.key) == (
        7147562325056435547,
        "192fefe501390c97803c0ffdccb79ed1634f18cbb5810a4c9e5548fd97c76a39",
    )
    [rollout] = rolled({"tasks": [{"path": "a", "model": "m", "env": {"A": 1}}]}, [FakeTask("t", "d")]).trials
    assert (rollout.seed, rollout.key) == (
        3959062962836195465,
        "f74a9eb4b09df85e9caff4f1fd63bf0a6d4d2964aedd2641beddbc57bd935059",
    )


def test_another_process_with_another_hash_seed_makes_the_same_plan() -> None:
    script = (
        "from proctor.model.subject import *; from proctor.plan.expand import expand\n"
        "from proctor.spec.load import from_mapping\n"
        "info = ExperimentInfo(slug='demo', digest='d', open_params=True)\n"
        "spec = from_mapping({'experiment': 'demo', 'sweep': {c: list(range(5)) for c in 'zyxab'},"
        " 'strategy': 'random', 'samples': 20, 'params': {'o': {'b': 1, 'a': 2}}})\n"
        "print(expand(spec, experiments={'demo': info}).digest)"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


POINTS = st.lists(st.integers(-5, 5), min_size=1, max_size=6, unique=True)


@given(POINTS, st.integers(0, 2**63 - 1))
def test_a_point_keeps_its_key_and_seed_whatever_stands_beside_it(values: list[int], seed: int) -> None:
    together = planned({"experiment": "demo", "sweep": {"n": values}, "seed": seed}).trials
    for trial in together:
        [alone] = planned({"experiment": "demo", "params": {"n": trial.params["n"]}, "seed": seed}).trials
        assert (alone.key, alone.seed) == (trial.key, trial.seed)
    assert len({trial.seed for trial in together}) == len(values)


@given(st.permutations(["n", "rate", "seed", "experiment", "iterations"]))
def test_the_order_of_keys_in_a_spec_does_not_matter(order: list[str]) -> None:
    data = {"n": 3, "rate": 2.5, "seed": 4, "experiment": "demo", "iterations": {"warmup": 1, "measured": 2}}
    params = {key: data[key] for key in order if key in {"n", "rate"}}
    rest = {key: data[key] for key in order if key not in {"n", "rate"}}
    usual = {
        "experiment": "demo",
        "params": {"n": 3, "rate": 2.5},
        "iterations": {"measured": 2, "warmup": 1},
        "seed": 4,
    }
    assert keys({**rest, "params": params}) == keys(usual)


@given(POINTS, POINTS, st.integers(0, 3))
def test_no_plan_has_a_key_twice(first: list[int], second: list[int], seed: int) -> None:
    bodies = [{"experiment": "demo", "sweep": {"n": each}} for each in (first, second)]
    plan = planned({"experiments": bodies, "seed": seed})
    assert len({trial.key for trial in plan.trials}) == len(plan)
    assert {trial.params["n"] for trial in plan.trials} == {*first, *second}
    assert [trial.index for trial in plan.trials] == list(range(len(plan)))
    assert len(plan.warnings) == bool(set(first) & set(second))


def test_points_that_repeat_run_once_and_are_reported() -> None:
    plan = planned({"experiments": [{"experiment": "demo", "sweep": {"n": [1, 2]}}, "demo"]})
    assert len(plan) == 2
    assert plan.warnings == ("experiments.1: 1 of its trials repeat earlier ones and run only once",)


def test_the_same_point_measured_in_another_way_is_another_trial() -> None:
    plan = planned({"experiments": ["demo", {"experiment": "demo", "instrumentation": "cprofile"}]})
    assert [trial.body for trial in plan.trials] == [0, 1]
    assert plan.warnings == ()


def test_notes_of_the_sweep_reach_the_plan() -> None:
    assert planned({"experiment": "demo", "params": {"n": 1}, "sweep": {"n": [1]}}).warnings == (
        "demo: 'sweep' varies 'n', so its value under 'params' is not used",
    )


def loaded(folder: Path, text: str) -> Spec:
    path = folder / "s.yaml"
    path.write_text(text)
    return load(path)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("experiment: dem", NotFoundError, "s.yaml:1:1: 'dem' is not an experiment; did you mean 'demo'?"),
        (
            "experiments:\n- demo\n- zzz",
            NotFoundError,
            "s.yaml:3:3: 'zzz' is not an experiment; known: demo, other",
        ),
        ("experiment: demo\nparams:\n  m: 1", ParamError, "s.yaml:3:3: 'm' is not a parameter of 'demo'"),
        (
            "experiment: demo\nsweep:\n  n: [1, x]",
            ParamError,
            "s.yaml:3:3: parameter 'n' of 'demo': expected a whole",
        ),
        ("experiment: demo\nsweep: {n: [1]}\nparams: {n: [1]}", SpecError, "s.yaml:2:9: 'n' is swept twice"),
    ],
)
def test_errors_found_while_planning_point_into_the_file(
    tmp_path: Path, text: str, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as caught:
        expand(loaded(tmp_path, text), experiments=KNOWN)
    assert str(caught.value).removeprefix(f"{tmp_path}/").startswith(message)


def test_a_parameter_that_is_missing_is_asked_for_where_the_experiment_stands(tmp_path: Path) -> None:
    needy = ExperimentInfo(slug="demo", digest="d", params={"n": ParamInfo(name="n", type="int")})
    with pytest.raises(ParamError, match=r"s.yaml:2:1: 'demo' needs 'n'"):
        expand(loaded(tmp_path, "seed: 1\nexperiment: demo"), experiments={"demo": needy})


def test_without_any_experiment_the_error_says_so() -> None:
    with pytest.raises(NotFoundError, match="'demo' is not an experiment; no experiments are known here"):
        expand(from_mapping({"experiment": "demo"}))


ONE, TWO = FakeTask("one", "d1"), FakeTask("two", "d2")


def test_tasks_are_crossed_with_agents_models_variables_and_rollouts() -> None:
    plan = rolled(
        {
            "tasks": [
                {
                    "dataset": "d",
                    "agent": ["a", "b"],
                    "model": ["m", None],
                    "rollouts": 3,
                    "sweep": {"V": [1, 2]},
                }
            ]
        },
        [ONE, TWO],
        a="1.0",
    )
    assert len(plan) == 2 * 2 * 2 * 3 * 2
    assert {trial.overrides["environment_variables"]["V"] for trial in plan.trials} == {"1", "2"}
    assert {(trial.agent, trial.agent_version) for trial in plan.trials} == {("a", "1.0"), ("b", None)}
    assert plan.trials[0].path == "somewhere"
    assert plan.trials[0].label == "one × a/m #1"


def test_first_rollouts_of_all_tasks_come_before_second_ones() -> None:
    data = {"tasks": [{"path": "x", "rollouts": 3}, {"path": "y", "rollouts": 1}]}
    plan = rolled(data, [ONE], [TWO])
    assert [(trial.subject, trial.rollout) for trial in plan.trials] == [
        ("one", 0),
        ("two", 0),
        ("one", 1),
        ("one", 2),
    ]


def test_agents_meet_the_same_seed_on_the_same_rollout_and_another_on_the_next() -> None:
    plan = rolled({"tasks": [{"path": "x", "agent": ["a", "b"], "rollouts": 2}]}, [ONE])
    seeds = {(trial.agent, trial.rollout): trial.seed for trial in plan.trials}
    assert seeds["a", 0] == seeds["b", 0] != seeds["a", 1]


@pytest.mark.parametrize(
    ("entry", "top"),
    [
        ({"agent": "b"}, {}),
        ({"model": "m"}, {}),
        ({"environment_variables": {"A": "1"}}, {}),
        ({"overrides": {"repo": {}}}, {}),
        ({"overrides": "file.json"}, {}),
        ({"apply_overrides": False}, {}),
        ({"agent_options": {"steps": 1}}, {}),
        ({}, {"timeout_s": 5}),
        ({}, {"sandbox": {"cpus": 1}}),
        ({}, {"sandbox": {"network": "allowlist", "allowed_hosts": ["h"]}}),
        ({}, {"seed": 5}),
    ],
)
def test_what_can_change_a_rollout_moves_its_key(entry: dict[str, Any], top: dict[str, Any]) -> None:
    usual = rolled({"tasks": [{"path": "x", "agent": "a"}]}, [ONE])
    changed = rolled({"tasks": [{"path": "x", "agent": "a", **entry}], **top}, [ONE])
    assert usual.trials[0].key != changed.trials[0].key


SANDBOXES: list[dict[str, Any]] = [
    {"network": "none"},
    {"network": "public"},
    {"network": "allowlist", "allowed_hosts": ["a.example"]},
    {"network": "allowlist", "allowed_hosts": ["b.example"]},
    {"network": "public", "network_allow": ["10.0.0.0/8"]},
    {"host_root": True},
    {"cpus": 1},
    {"cpus": 2},
    {"memory_bytes": 1 << 30},
    {"pids": 64},
    {"storage_bytes": 1 << 30},
]


def test_network_root_and_every_limit_are_in_the_key() -> None:
    """Two runs that differ in one of them answer different questions; the back end is not among them."""
    data = {"tasks": [{"path": "x", "agent": "a"}]}
    found = [rolled({**data, "sandbox": each}, [ONE]).trials[0].key for each in [{}, *SANDBOXES]]
    assert len(set(found)) == len(SANDBOXES) + 1
    for each, key in zip(SANDBOXES, found[1:], strict=True):
        moved = rolled({**data, "sandbox": {**each, "backend": "podman"}}, [ONE])
        assert moved.trials[0].key == key


def test_where_a_task_is_and_which_back_end_runs_it_does_not_move_the_key() -> None:
    usual = rolled({"tasks": ["x"]}, [ONE])
    moved = rolled({"tasks": ["y"], "sandbox": "podman"}, [replace(ONE, path=Path("elsewhere"))])
    assert usual.trials[0].key == moved.trials[0].key


def test_an_agents_version_moves_the_key() -> None:
    data = {"tasks": [{"path": "x", "agent": "a"}]}
    assert rolled(data, [ONE], a="1").trials[0].key != rolled(data, [ONE], a="2").trials[0].key


def test_overrides_that_are_not_applied_do_not_matter() -> None:
    with_file = {"tasks": [{"path": "x", "apply_overrides": False, "overrides": "f.json"}]}
    without = {"tasks": [{"path": "x", "apply_overrides": False}]}
    assert rolled(with_file, [ONE]).trials[0].key == rolled(without, [ONE]).trials[0].key


def test_repeated_entries_of_a_task_run_once_and_say_what_to_do() -> None:
    plan = rolled({"tasks": [{"path": "x", "rollouts": 2}, {"path": "x", "rollouts": 3}]}, [ONE], [ONE])
    assert len(plan) == 3
    [warning] = plan.warnings
    assert warning.endswith(
        "2 of its trials repeat earlier ones and run only once; for more of the same, raise 'rollouts'"
    )


def test_a_swept_variable_that_is_also_fixed_is_reported() -> None:
    plan = rolled({"tasks": [{"path": "x", "env": {"A": 9}, "sweep": {"A": [1, 2]}}]}, [ONE])
    assert len(plan) == 2
    assert "'sweep' varies A" in plan.warnings[0]


def test_different_tasks_of_one_name_are_reported() -> None:
    plan = rolled({"tasks": ["x"]}, [ONE, FakeTask("one", "other", Path("there"))])
    assert plan.warnings == ("two different tasks are named 'one': somewhere and there",)


def test_the_tasks_of_every_entry_must_be_given() -> None:
    with pytest.raises(UsageError, match="the spec has 1 task entries, but tasks of 0 were read"):
        expand(from_mapping({"tasks": ["x"]}))


def test_a_plan_without_end_is_refused_early(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = {"tasks": [{"path": "x", "sweep": {name: list(range(100)) for name in "ABCDEFGH"}}]}
    with pytest.raises(SpecError, match=r"the sweep has 10,000,000,000,000,000 points"):
        rolled(wide, [ONE])
    monkeypatch.setattr(expand_module, "MAX_TRIALS", 3)
    with pytest.raises(SpecError, match="more than 3 trials"):
        rolled({"tasks": [{"path": "x", "rollouts": 10**12}]}, [ONE])
    assert len(planned({"experiment": "demo", "sweep": {"n": [1, 2, 3]}})) == 3
    with pytest.raises(SpecError, match="more than 3 trials"):
        planned({"experiments": [{"experiment": name, "sweep": {"n": [1, 2]}} for name in KNOWN]})


def test_a_plan_of_large_values_is_refused_before_it_fills_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(expand_module, "MAX_PLAN_BYTES", 5000)
    many = {f"V{number}": "x" for number in range(100)}
    swept = {"path": "x", "environment_variables": many, "sweep": {"A": list(range(50))}}
    for plan in (
        lambda: planned({"experiment": "demo", "sweep": {"n": list(range(1000))}}),
        lambda: rolled({"tasks": [{"path": "x", "rollouts": 100, "environment_variables": many}]}, [ONE]),
        lambda: rolled({"tasks": [swept]}, [ONE]),
    ):
        with pytest.raises(SpecError, match="put large values into files"):
            plan()


def test_very_many_repeated_entries_are_summed_up() -> None:
    plan = planned({"experiments": ["demo"] * 30})
    assert len(plan.warnings) == 21
    assert plan.warnings[-1] == "9 more entries repeat earlier trials"


@given(st.randoms(use_true_random=False))
def test_shuffled_tasks_keep_their_keys(shuffler: random.Random) -> None:
    tasks = [FakeTask(f"t{at}", f"d{at}") for at in range(5)]
    mixed = shuffler.sample(tasks, 5)
    data = {"tasks": [{"dataset": "d", "rollouts": 2}]}
    assert {trial.key for trial in rolled(data, tasks).trials} == {
        trial.key for trial in rolled(data, mixed).trials
    }


def test_overrides_are_plain_data_that_a_store_gives_back_equal() -> None:
    import json

    spec = {"experiment": "demo", "instrumentation": ["timing", "psutil"]}
    for trial in planned(spec).trials:
        assert json.loads(json.dumps(trial.overrides)) == trial.overrides
