"""The shipped specs and examples name what exists, and every point of them runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.experiments.base import ExperimentContext
from proctor.experiments.describe import info, instantiate
from proctor.experiments.discover import find
from proctor.spec.load import load
from proctor.spec.sweep import points

ROOT = Path(__file__).parents[2]
EXPERIMENT_SPECS = {
    "json_encode": 4,
    "memory_db_baseline": 3,
    "pragma_profile_baseline": 4,
    "pragma_profile_sweep": 12,
    "sorting": 6,
    "spatial_comprehensive_baseline": 5,
    "spatial_comprehensive_sweep": 30,
}


@pytest.mark.parametrize(("name", "count"), EXPERIMENT_SPECS.items())
def test_a_shipped_spec_names_an_experiment_and_only_points_that_fit(name, count):
    spec = load(ROOT / "specs" / f"{name}.yaml")
    (body,) = spec.experiments
    found = find(body.experiment, [str(ROOT / "specs" / source) for source in spec.sources])
    assert len(points(body, info(found), spec.seed)) == count


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
