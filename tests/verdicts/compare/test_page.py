from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
from msgspec import structs
from tests.render.pages import checked

from proctor.analysis.estimate import TaskRewards
from proctor.render.document.html import html
from proctor.render.results.compare import comparison
from proctor.verdicts.compare.by_task import SPENT, arm_scores, spent, task_differences, with_spent
from proctor.verdicts.compare.judge import compare
from proctor.verdicts.compare.means import clustered_mean
from proctor.verdicts.compare.results import ArmRewards, ResultPoint, ResultSet, from_run


def experiment(factor=1.0, points=3, values=12, seed=1, name="sort", slow=()):
    rng = random.Random(seed)
    return ResultSet(
        label=f"{name} run-{seed}",
        source="run",
        name=name,
        run_id=f"run-{seed}",
        metrics=("duration_s",),
        points=tuple(
            ResultPoint(
                name=f"sort(size={at})",
                samples={
                    "duration_s": tuple(
                        0.01 * (at + 1) * factor * (3 if at in slow else 1) * rng.lognormvariate(0, 0.01)
                        for _ in range(values)
                    )
                },
            )
            for at in range(points)
        ),
    )


def agents(ability, tasks=12, each=6, seed=1, arms=("terminal/m1",), errors=0):
    rng = random.Random(seed)
    points, rewards = [], {arm: [] for arm in arms}
    for arm in arms:
        for number in range(tasks):
            task = f"task-{number:02d}"
            name = f"{task} × {arm}" if len(arms) > 1 else task
            scored = tuple(float(rng.random() < ability) for _ in range(each))
            rewards[arm].append(TaskRewards(name=task, scored=scored, errors=errors))
            samples = {
                "duration_s": tuple(rng.lognormvariate(2, 0.2) for _ in scored),
                "cost_usd": tuple(rng.lognormvariate(-3, 0.2) for _ in scored),
            }
            points.append(ResultPoint(name=name, subject=name, samples=samples, arm=arm, task=task))
    return ResultSet(
        label=f"agents run-{seed}", source="run", kind="task", name="agents", run_id=f"run-{seed}",
        metric="reward", points=tuple(points),
        arms=tuple(ArmRewards(name=arm, tasks=tuple(found)) for arm, found in rewards.items()),
    )  # fmt: skip


def page_of(a, b, **more):
    page = html(comparison(compare(a, b, **more), a, b))
    checked(page)
    assert "nan" not in re.findall(r'[xy]\d?="([^"]+)"', page)
    return page


def test_the_verdict_comes_first_then_the_forest_then_what_would_change_it():
    page = page_of(experiment(), experiment(3.0, seed=2))
    places = [
        page.index(each)
        for each in ("class=lead>Worse: 3 of 3 points", "B over A, point by point", "What was")
    ]
    assert places == sorted(places)
    assert "t-bad" in page
    assert "all points, geometric mean" in page
    assert "Every iteration in the order measured" in page
    assert "Times stored at different moments" in page


def test_a_single_point_needs_no_row_for_all_points():
    page = page_of(experiment(points=1), experiment(points=1, seed=2))
    assert "geometric mean" not in page
    assert "comparisons of single points" not in page


def test_of_very_many_points_the_ends_are_drawn_and_the_rest_is_counted():
    page = page_of(experiment(points=300, values=5), experiment(points=300, values=5, seed=2, slow=(7,)))
    assert "… 260 more between these" in page
    assert "And 100 more; " in page
    assert "Every point, 300 of them" in page
    assert len(page) < 400_000


def test_values_that_have_no_ratio_are_told_and_break_nothing():
    a, b = experiment(), experiment(seed=2)
    zero = replace(b.points[0], samples={"duration_s": (0.0, 0.0)})
    page = page_of(a, replace(b, points=(zero, *b.points[1:])))
    assert "no ratio" in page


def test_failures_and_points_of_one_side_are_listed():
    a, b = experiment(), experiment(seed=2)
    broken = replace(b.points[0], samples={}, failed="failed: ValueError in setup")
    other = replace(b.points[2], name="sort(size=<99>)")
    page = page_of(a, replace(b, points=(broken, b.points[1], other)))
    assert "no result on one side" in page
    assert "</i>new</span>" in page
    assert "sort(size=&lt;99&gt;)" in page


def test_rollouts_show_tasks_costs_and_what_was_spent():
    page = page_of(agents(0.8), agents(0.4, seed=2))
    for each in (
        "B minus A, task by task",
        "mean over tasks",
        "Cost against score",
        "Time and resources",
        "paired t test",
    ):
        assert each in page
    assert "would be detected with 80 % probability" in page.replace("\u00a0", " ")
    assert "A terminal/m1" in page
    assert "B terminal/m1" in page


def test_errors_are_told_with_what_they_could_have_hidden():
    page = page_of(agents(0.8, errors=1), agents(0.6, seed=2, errors=2))
    assert "Errors that were not the agent&#x27;s: 12 in A, 24 in B." in page or "12 in A, 24 in B" in page
    assert "For any true result of the 36 errors" in page


def test_few_tasks_name_the_exact_test_and_time_stands_in_for_money():
    a, b = agents(0.8, tasks=7), agents(0.5, tasks=7, seed=2)
    free = [replace(side, points=tuple(
        replace(point, samples={"duration_s": point.samples["duration_s"]}) for point in side.points
    )) for side in (a, b)]  # fmt: skip
    page = page_of(*free)
    assert "exact sign-flip test" in page
    assert "Duration against score" in page


def test_several_agents_are_joined_from_a_to_b():
    page = page_of(agents(0.8, arms=("x/m", "y/m")), agents(0.6, seed=2, arms=("x/m", "y/m")))
    assert page.count('class="guide"') >= 2
    assert "B y/m" in page


def test_rollouts_compared_on_another_metric_have_a_forest_of_tasks_too():
    page = page_of(agents(0.8), agents(0.8, seed=2), metrics=("reward", "duration_s"))
    assert "B over A, task by task" in page


def test_a_task_that_never_changed_and_one_that_flipped():
    same, flipped = task_differences(
        [TaskRewards(name="b", scored=(1.0,) * 9), TaskRewards(name="a", scored=(0.0,) * 9)],
        [TaskRewards(name="b", scored=(0.0,) * 9), TaskRewards(name="a", scored=(0.0,) * 9)],
    )[::-1]
    assert (same.name, same.difference) == ("a", 0.0)
    assert same.low < 0 < same.high
    assert (flipped.name, flipped.difference) == ("b", -1.0)
    assert flipped.high < -0.5


def test_rewards_beyond_one_have_no_interval_of_a_share():
    (found,) = task_differences(
        [TaskRewards(name="a", scored=(3.0, 4.0))], [TaskRewards(name="a", scored=(5.0,))]
    )
    assert found.difference == 1.5
    assert (found.low, found.high) == (-float("inf"), float("inf"))
    sides = []
    for scored in ((3.0, 4.0), (5.0, 5.0)):
        side = agents(0.5)
        tasks = tuple(replace(task, scored=scored) for task in side.tasks)
        sides.append(replace(side, arms=(replace(side.arms[0], tasks=tasks),)))
    page_of(*sides)


def test_every_task_weighs_the_same_in_a_mean():
    found = clustered_mean({"a": [1.0] * 100, "b": [3.0]})
    assert found.value == 2.0
    assert found.low < 2.0 < found.high
    assert clustered_mean({"a": [2.0]}).low is None
    assert clustered_mean({"a": []}) is None


def test_what_both_sides_spent_is_paired_by_task():
    a, b = agents(0.5), agents(0.5, seed=2)
    doubled = replace(
        b,
        points=tuple(
            replace(
                two,
                samples={name: tuple(2 * each for each in values) for name, values in one.samples.items()},
            )
            for one, two in zip(a.points, b.points, strict=True)
        ),
    )
    found = {each.metric: each for each in spent(a, doubled)}
    assert found["duration_s"].ratio == pytest.approx(2.0)
    assert found["cost_usd"].interval.contains(2.0)
    assert set(found) == {"duration_s", "cost_usd"}
    assert [each.arm for each in arm_scores(a, "cost_usd")] == ["terminal/m1"]
    assert arm_scores(a, "absent") == []


def test_a_page_of_rollouts_reads_what_was_spent_and_one_of_experiments_does_not(runs):
    task, sweep = runs.rollouts().info, runs.lines().info
    assert with_spent(task, (), SPENT) == ("reward", *SPENT)
    assert with_spent(structs.replace(task, total=10**6), ("reward",), SPENT) == (
        "reward",
        "duration_s",
        "cost_usd",
    )
    assert with_spent(sweep, (), SPENT) == ()
    found = from_run(runs.rollouts(), with_spent(task, (), SPENT))
    assert page_of(found, found)
