"""The shipped specs and examples name what exists, and every point of them runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.experiments.small import SMALL

import proctor
from proctor.experiments.base import ExperimentContext
from proctor.experiments.describe import info, instantiate
from proctor.experiments.discover import BUILT_IN_MODULES, find
from proctor.model.canonical import canonical_json
from proctor.spec.load import from_mapping, load
from proctor.spec.sweep import points

ROOT = Path(__file__).parents[2]
EXPERIMENT_SPECS = {
    "comprehensive_profiling_sweep": 16,
    "database_profiler_baseline": 2,
    "json_encode": 4,
    "memory_db_baseline": 3,
    "observation_baseline": 1,
    "observation_profiler_baseline": 2,
    "observation_sweep": 8,
    "perception_metrics_baseline": 1,
    "perception_metrics_sweep": 16,
    "pragma_profile_baseline": 4,
    "pragma_profile_sweep": 12,
    "recommended_config": 24,
    "redis_memory_baseline": 1,
    "sorting": 6,
    "spatial_comprehensive_baseline": 5,
    "spatial_comprehensive_sweep": 30,
    "spatial_index_profiler_baseline": 1,
    "spatial_memory_profiler_baseline": 1,
    "spatial_performance_analyzer_baseline": 1,
    "system_profiler_baseline": 1,
}
OLDER = {
    "experiment": "pragma_profile",
    "params": {"num_records": 20, "db_size_mb": 0.1},
    "iterations": {"warmup": 0, "measured": 2},
    "instrumentation": ["timing"],
    "output_dir": "older/results",
    "tags": ["database"],
    "notes": "in the older shape",
    "seed": 42,
    "sweep": {"profiles": ["balanced", "performance"], "workloads": ["write_heavy", "read_heavy"]},
    "strategy": "random",
    "samples": 2,
    "parallelism": 1,
}


def found_in(spec, body):
    return find(body.experiment, [str(ROOT / "specs" / source) for source in spec.sources])


@pytest.mark.parametrize(("name", "count"), EXPERIMENT_SPECS.items())
def test_a_shipped_spec_names_experiments_and_only_points_that_fit(name, count):
    spec = load(ROOT / "specs" / f"{name}.yaml")
    assert sum(len(points(body, info(found_in(spec, body)), spec.seed)) for body in spec.experiments) == count


def test_every_shipped_spec_of_experiments_and_every_built_in_is_held_here():
    shipped = {file.stem for file in (ROOT / "specs").glob("*.yaml")}
    assert shipped == set(EXPERIMENT_SPECS)
    others = {"statement", "asv_benchmark", "pytest_benchmark"}
    assert {*SMALL, *others} == {name.rpartition(".")[2] for name in BUILT_IN_MODULES}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.needs("redis")] if "redis" in name else [])
        for name in sorted(set(EXPERIMENT_SPECS) - {"sorting", "json_encode"})
    ],
)
def test_every_point_of_a_shipped_spec_runs_at_a_small_size(name, tmp_path):
    spec = load(ROOT / "specs" / f"{name}.yaml")
    for body in spec.experiments:
        registered = found_in(spec, body)
        shrunk = {
            canonical_json(each): each
            for point in points(body, info(registered), spec.seed)
            for each in [{**point, **SMALL[body.experiment]}]
        }
        for point in shrunk.values():
            experiment = instantiate(registered, point)
            context = ExperimentContext(run_dir=tmp_path, seed=spec.seed)
            try:
                experiment.setup(context)
                assert experiment.execute_once(context)
            finally:
                experiment.teardown(context)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fault
@pytest.mark.skipif(not os.environ.get("PROCTOR_SOAK"), reason="a soak: set PROCTOR_SOAK=1")
@pytest.mark.parametrize("name", sorted(EXPERIMENT_SPECS))
def test_a_whole_spec_passes(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = proctor.run(ROOT / "specs" / f"{name}.yaml")
    assert set(done.outcomes) == {"passed"}


def test_a_spec_in_the_older_shape_runs_with_its_older_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = from_mapping(OLDER)
    assert (spec.parallel, spec.notes, spec.experiments[0].samples) == (1, "in the older shape", 2)
    done = proctor.run(OLDER)
    assert dict(done.outcomes) == {"passed": 2}
    assert (tmp_path / "older/results").is_dir()
    for trial in done.data.trials:
        assert trial.planned.params["records"] == 20
        assert trial.planned.params["workload"] in {"write-heavy", "read-heavy"}
    assert any("'num_records' is called 'records' now" in each for each in done.data.warnings)


@pytest.mark.parametrize("name", ["sorting", "json_encode"])
def test_every_point_of_an_example_runs(name):
    spec = load(ROOT / "specs" / f"{name}.yaml")
    found = find(name, [str(ROOT / "experiments.d")])
    for point in points(spec.experiments[0], info(found), spec.seed):
        experiment = instantiate(found, point)
        context = ExperimentContext(seed=spec.seed)
        experiment.setup(context)
        assert experiment.execute_once(context) == experiment.execute_once(context) != {}
        experiment.teardown(context)
