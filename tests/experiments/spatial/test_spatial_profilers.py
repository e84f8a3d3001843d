"""The profilers of spatial indexes: right answers, bytes that are there, exponents with intervals."""

from __future__ import annotations

import random

import pytest

from proctor.experiments.base import ExperimentContext
from proctor.experiments.spatial.base import BruteForce
from proctor.experiments.spatial.indexes import INDEXES, OWN, PATTERNS, draw_centers, walk
from proctor.experiments.spatial.quadtree import Quadtree
from proctor.experiments.spatial.spatial_index_profiler import SpatialIndexProfiler, ask
from proctor.experiments.spatial.spatial_memory_profiler import STRUCTURES, SpatialMemoryProfiler
from proctor.experiments.spatial.spatial_performance_analyzer import SpatialPerformanceAnalyzer

SIZES = {"algorithms": [*OWN], "agent_counts": [20, 60, 120]}


def run(cls, **params):
    experiment, context = cls({**SIZES, **params}), ExperimentContext(seed=3)
    experiment.setup(context)
    return experiment.execute_once(context)


def test_an_index_is_profiled_at_every_size_and_its_answers_checked():
    found = run(SpatialIndexProfiler, steps=5, algorithms=[*INDEXES])
    assert len(found["rows"]) == 15
    assert found["checked"] == 45
    for name in INDEXES:
        for kind in ("build", "update", "range", "nearest", "intersection"):
            assert found[f"{name}_{kind}_s"] > 0
            assert found[f"{name}_{kind}_p50_us"] <= found[f"{name}_{kind}_p95_us"]


def test_only_the_kinds_of_questions_asked_for_are_asked():
    found = run(SpatialIndexProfiler, steps=2, query_types=["nearest"])
    assert not any("range" in name or "intersection" in name for name in found)


def test_a_box_is_the_points_inside_it():
    points = [(0.5, 0.5), (0.6, 0.6), (0.61, 0.5), (0.4, 0.59)]
    for index in (BruteForce(points), Quadtree(points)):
        assert sorted(ask(index, "intersection", (0.5, 0.5), 0.1 + 1e-9)) == [0, 1, 3]


def test_a_wrong_answer_of_an_index_is_noticed(monkeypatch):
    monkeypatch.setattr(Quadtree, "radius", lambda self, center, radius: [])
    for cls, message in (
        (SpatialIndexProfiler, "range query: 0 points"),
        (SpatialPerformanceAnalyzer, "a radius query differs"),
    ):
        with pytest.raises(AssertionError, match=message):
            run(cls, steps=2, algorithms=["quadtree"])
    monkeypatch.undo()
    monkeypatch.setattr(Quadtree, "nearest", lambda self, center, count: [])
    with pytest.raises(AssertionError, match="a nearest query differs"):
        run(SpatialPerformanceAnalyzer, steps=2, algorithms=["quadtree"])


def test_memory_is_counted_for_indexes_and_holders():
    found = run(SpatialMemoryProfiler, steps=4, agent_counts=[20, 120], world_sizes=[50.0, 90.0])
    assert len(found["rows"]) == 12
    for name in OWN:
        assert found[f"{name}_bytes_per_point"] > 8
        assert found[f"{name}_bytes_exponent_low"] < found[f"{name}_bytes_exponent_high"]
    assert found["numpy_array_bytes_per_point"] < found["list_bytes_per_point"]
    assert {row["structure"] for row in found["holders"]} == {*STRUCTURES}
    assert all("gc_freed" in row and "growth_bytes_per_step" in row for row in found["rows"])


def test_memory_that_is_not_to_be_tracked_is_not():
    found = run(
        SpatialMemoryProfiler,
        steps=3,
        agent_counts=[20],
        world_sizes=[50.0],
        track_memory_usage=False,
        track_garbage_collection=False,
    )
    assert not any("growth" in name or "gc_" in name for row in found["rows"] for name in row)
    assert not any("exponent" in name for name in found)


def test_a_leak_shows_as_growth(monkeypatch):
    leaked = []
    moved = Quadtree.move_many

    def leaking(self, moves):
        leaked.append(bytearray(5000))
        moved(self, moves)

    monkeypatch.setattr(Quadtree, "move_many", leaking)
    found = run(
        SpatialMemoryProfiler, steps=10, algorithms=["quadtree"], agent_counts=[20], world_sizes=[50.0]
    )
    assert 4000 < found["quadtree_growth_bytes_per_step"] < 7000


def test_exponents_scalability_and_bytes_are_what_is_asked_for():
    found = run(SpatialPerformanceAnalyzer, steps=3, world_sizes=[100.0], query_radii=[10.0])
    assert found["combinations"] == 3 * 3 * len(PATTERNS)
    for name in OWN:
        for what in ("build", "radius", "nearest"):
            assert found[f"{name}_{what}_exponent_low"] < found[f"{name}_{what}_exponent_high"]
        assert found[f"{name}_rate_kept"] > 0
        assert found[f"{name}_bytes_per_point"] > 8
    found = run(
        SpatialPerformanceAnalyzer,
        steps=2,
        analyze_complexity=False,
        analyze_scalability=False,
        analyze_memory_efficiency=False,
    )
    assert found.keys() == {"combinations", "builds", "rows"}


def test_patterns_stay_in_the_square_and_walks_in_reach():
    pick = random.Random(1)
    for pattern in PATTERNS:
        centers = draw_centers(pick, 30, pattern)
        assert len(centers) == 30
        assert all(0 <= x <= 1 and 0 <= y <= 1 for x, y in centers)
    points = [(pick.random(), pick.random()) for _ in range(50)]
    for number, (x, y) in walk(pick, points, 0.1, 0.02):
        assert abs(points[number][0] - x) <= 0.02
        assert abs(points[number][1] - y) <= 0.02
