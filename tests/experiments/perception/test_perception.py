"""Agents see what is around them, whatever the storage; and a wrong observation is noticed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.experiments.base import ExperimentContext
from proctor.experiments.perception.observation_flow import ObservationFlow
from proctor.experiments.perception.observation_profiler import STAGES, ObservationProfiler
from proctor.experiments.perception.perception_metrics import PerceptionMetrics
from proctor.experiments.simulation.perception import Field, Perception, project

SMALL = {"width": 30, "height": 20, "num_agents": 15, "steps": 4, "radius": 4, "fov_radius": 3}


def run(cls, params):
    experiment = cls(params)
    context = ExperimentContext(seed=3)
    experiment.setup(context)
    return experiment.execute_once(context)


@pytest.mark.parametrize("storage", ["hybrid", "dense"])
@pytest.mark.parametrize("bilinear", [False, True])
def test_every_storage_observes_the_same_world(storage, bilinear):
    found = run(ObservationFlow, {**SMALL, "storage": storage, "use_bilinear": bilinear})
    assert found["total_observes"] == 60
    assert found["checked"] == 5
    assert found["dense_bytes"] == 15 * 3 * 9 * 9 * 4
    assert found["memory_reduction_percent"] == 100 * (1 - found["sparse_bytes"] / found["dense_bytes"])
    assert (found["cache_hit_rate"] > 0) == (storage == "hybrid")


def test_nothing_moves_and_every_observation_is_a_hit():
    assert run(ObservationFlow, {**SMALL, "move_share": 0.0})["cache_hit_rate"] == 1


def test_the_stages_add_up():
    found = run(ObservationProfiler, SMALL)
    assert sum(found[f"{stage}_share"] for stage in STAGES) == pytest.approx(1)
    assert all(found[f"{stage}_p50_us"] <= found[f"{stage}_p99_us"] for stage in STAGES)


def test_combinations_are_crossed_and_growth_has_an_interval():
    found = run(
        PerceptionMetrics,
        {
            "agent_counts": [5, 10, 20],
            "radii": [3],
            "storage_modes": ["hybrid", "dense"],
            "use_bilinear_list": [True],
            "steps": 2,
        },
    )
    assert found["combinations"] == len(found["rows"]) == 6
    assert found["total_observes"] == 2 * 2 * 35
    assert found["step_time_exponent_low"] < found["step_time_exponent"] < found["step_time_exponent_high"]
    assert {"storage_hybrid_observes_per_sec", "bilinear_true_observes_per_sec"} < found.keys()


def test_one_size_alone_has_no_exponent():
    found = run(PerceptionMetrics, {"agent_counts": [5], "radii": [3], "steps": 1})
    assert "step_time_exponent" not in found


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.floats(-3, 3), st.floats(-3, 3)),
        max_size=20,
    )
)
def test_interpolation_keeps_the_whole_of_what_is_inside(near):
    cells = project(near, 4, bilinear=True)
    assert sum(value for *_, value in cells) == pytest.approx(len(near))
    assert sum(value for *_, value in project(near, 4, bilinear=False)) == pytest.approx(len(near))


def test_a_thing_beyond_the_field_of_view_is_not_seen():
    field = Field(width=20, height=20, num_agents=0, bucket=4.0, seed=1)
    field.place([(10.0, 10.0)], [(10.0, 12.0), (10.0, 16.0)])
    seen = Perception(field, radius=8, fov_radius=5)
    array = seen.observe(0)
    assert array[1].sum() == 1
    assert array[1, 8 + 2, 8] == 1


def test_a_wrong_observation_is_noticed():
    field = Field(width=20, height=20, num_agents=4, bucket=4.0, seed=1)
    seen = Perception(field, radius=4, fov_radius=4)
    for agent in range(4):
        seen.observe(agent)
        seen.kept[agent].dense = seen.kept[agent].dense + 1
    with pytest.raises(AssertionError, match="agent 0 does not see"):
        seen.check(range(4))
