"""Every index answers like brute force, whatever the points are."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import MissingExtraError
from proctor.experiments.base import ExperimentContext
from proctor.experiments.spatial.base import BruteForce, squared
from proctor.experiments.spatial.indexes import INDEXES, load_index
from proctor.experiments.spatial.kd_tree import KdTree
from proctor.experiments.spatial.quadtree import Quadtree
from proctor.experiments.spatial.spatial_comprehensive import SpatialComprehensive, check
from proctor.experiments.spatial.spatial_hash import SpatialHash

SMALL = {"points": 150, "queries": 25, "updates": 20, "radius": 0.15}
OWN = [KdTree, Quadtree, SpatialHash]

# A coarse grid makes equal points and equal distances common.
coordinate = st.integers(0, 8).map(lambda number: number / 8) | st.floats(-2, 2, width=32)
points = st.lists(st.tuples(coordinate, coordinate), max_size=120)


def distances(index, center, numbers):
    return [squared(center, index.points[number]) for number in numbers]


@pytest.mark.parametrize("index_class", OWN)
@settings(max_examples=60, deadline=None)
@given(
    given=points,
    center=st.tuples(coordinate, coordinate),
    radius=st.floats(0, 1.5),
    count=st.integers(1, 12),
    moves=st.lists(st.tuples(st.integers(0, 119), st.tuples(coordinate, coordinate)), max_size=60),
)
def test_own_indexes_agree_with_brute_force_before_and_after_moves(
    index_class, given, center, radius, count, moves
):
    index, truth = index_class(given), BruteForce(given)
    for _ in range(2):
        assert sorted(index.radius(center, radius)) == truth.radius(center, radius)
        found = index.nearest(center, count)
        assert len(set(found)) == len(found)
        # Among points at the same distance any order is right.
        assert distances(index, center, found) == distances(truth, center, truth.nearest(center, count))
        for number, to in moves:
            if number < len(given):
                index.move(number, to)
                truth.move(number, to)


@pytest.mark.parametrize("index_class", OWN)
def test_many_equal_points_are_held_without_end(index_class):
    index = index_class([(0.5, 0.5)] * 200)
    index.move(0, (0.25, 0.5))
    assert len(index.radius((0.5, 0.5), 0.1)) == 199
    assert index.nearest((0, 0.5), 1) == [0]


@pytest.mark.parametrize("index_class", OWN)
def test_a_question_from_far_away_is_answered(index_class):
    assert index_class([(0.0, 0.0), (1e-6, 0.0)]).nearest((1e6, 1e6), 1) == [1]


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("update_mode", ["immediate", "batched"])
@pytest.mark.parametrize("query_mode", ["single", "bulk"])
@pytest.mark.parametrize("distribution", ["uniform", "clustered"])
def test_every_index_passes_its_own_checks(index, update_mode, query_mode, distribution):
    experiment = SpatialComprehensive(
        {
            **SMALL,
            "index": index,
            "update_mode": update_mode,
            "query_mode": query_mode,
            "distribution": distribution,
        }
    )
    context = ExperimentContext(seed=3)
    experiment.setup(context)
    first, second = experiment.execute_once(context), experiment.execute_once(context)
    experiment.teardown(context)
    assert first["checked"] == 80
    assert first["found_per_radius_query"] == second["found_per_radius_query"] > 0
    assert all(
        first[name] > 0 for name in ("build_s", "radius_us", "nearest_us", "update_us", "queries_per_s")
    )


@pytest.mark.parametrize("index", INDEXES)
def test_one_point_and_more_neighbours_than_points_are_fine(index):
    experiment = SpatialComprehensive(points=1, queries=3, nearest=5, index=index, updates=4)
    context = ExperimentContext(seed=3)
    experiment.setup(context)
    assert experiment.execute_once(context)["checked"] == 12


class Forgetful(KdTree):
    """Never hears of a move."""

    def move(self, number, to):
        del number, to


class Short(KdTree):
    """Misses a neighbour."""

    def nearest(self, center, count):
        return super().nearest(center, count)[1:]


@pytest.mark.parametrize(
    ("index_class", "message"), [(Forgetful, "after the moves"), (Short, "nearest query 0 before")]
)
def test_a_wrong_index_is_caught(monkeypatch, index_class, message):
    monkeypatch.setattr(
        "proctor.experiments.spatial.spatial_comprehensive.load_index", lambda name: index_class
    )
    experiment = SpatialComprehensive({**SMALL, "points": 40, "updates": 40, "radius": 0.3})
    experiment.setup(ExperimentContext(seed=3))
    with pytest.raises(AssertionError, match=message):
        experiment.execute_once(ExperimentContext(seed=3))


def test_a_wrong_radius_answer_is_caught():
    experiment = SpatialComprehensive(SMALL)
    experiment.setup(ExperimentContext(seed=3))
    twice = [[*found, *found] for found in experiment.before.radius]
    with pytest.raises(AssertionError, match="radius query 0 then"):
        check(experiment.before, twice, experiment.before.nearest, "then")


@pytest.mark.parametrize(
    ("index", "package"), [("scipy_kd_tree", "scipy"), ("sklearn_kd_tree", "scikit-learn")]
)
def test_a_missing_library_says_how_to_install_it(monkeypatch, index, package):
    for module in ("scipy.spatial", "sklearn.neighbors"):
        monkeypatch.setitem(sys.modules, module, None)
    experiment = SpatialComprehensive({**SMALL, "index": index})
    with pytest.raises(MissingExtraError, match=r"proctor-bench\[spatial\]") as caught:
        experiment.setup(ExperimentContext())
    assert caught.value.package == package


def test_the_same_seed_gives_the_same_points():
    def points_of(seed):
        experiment = SpatialComprehensive(SMALL)
        experiment.setup(ExperimentContext(seed=seed))
        return experiment.points, experiment.centers, experiment.moves

    assert points_of(1) == points_of(1)
    assert points_of(1) != points_of(2)


def test_only_the_chosen_index_is_imported():
    assert load_index("quadtree") is Quadtree


def test_only_the_radius_relative_to_the_world_counts(tmp_path):
    found = []
    for world, radius in ((1.0, 0.15), (200.0, 30.0)):
        experiment = SpatialComprehensive({**SMALL, "world_size": world, "radius": radius, "steps": 3})
        experiment.setup(ExperimentContext(run_dir=tmp_path, seed=2))
        found.append(experiment.execute_once(ExperimentContext())["found_per_radius_query"])
    assert found[0] == found[1] > 0
