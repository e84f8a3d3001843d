from __future__ import annotations

import json
import re

import pytest
from tests.render.pages import checked

from proctor.errors import NotFoundError, UsageError
from proctor.model.outcome import Outcome
from proctor.model.trial import RunStatus
from proctor.render.document.html import html
from proctor.render.results.history import history as shown
from proctor.verdicts.history import reading
from proctor.verdicts.history.collect import collect
from proctor.verdicts.history.document import to_mapping
from proctor.verdicts.history.words import captions, differences, left_out, sentence, sparkline


def step(series, *, at=10, runs=20, factor=1.2, **more):
    for number in range(runs):
        series.points("sort", number, factor if number >= at else 1.0, **more)


def page_of(history):
    page = html(shown(history))
    checked(page)
    assert not re.search(r'(?:src|href)="http', page)
    return page


def test_a_step_is_found_where_it_happened_and_named_with_its_commits(series):
    step(series)
    history = collect(series.store, "sort")
    (line,) = history.lines
    (move,) = line.moves
    assert (move.at, move.last) == (10, 9)
    assert move.change == pytest.approx(0.2, abs=0.03)
    assert move.low < 0.2 < move.high
    said = sentence(history)
    assert said.startswith("duration_s of sort: one change, +")
    assert "at run sort-010, commit 0000000000, between 2026-06-06" in said
    assert sparkline(line).count("|") == 1
    page = page_of(history)
    assert "<p class=lead>duration_s of sort: one change, +" in page
    assert 'class="move"' in page


def test_an_unchanged_series_says_so_with_its_noise(series):
    step(series, factor=1.0)
    history = collect(series.store, "sort")
    assert re.search(r"no lasting change in 20 runs \(runs differ by about ±\S+ %", sentence(history))
    assert "no lasting change" in page_of(history)


def test_a_history_on_a_loaded_machine_is_judged_by_the_cpu_clock_for_all_of_its_runs(series):
    # By the wall clock the machine, half as busy from the tenth run on, looks like the code.
    for number in range(20):
        factor = 1.26 if number >= 12 else 1.0
        series.points("sort", number, factor, waited=0.6 if number < 10 else 0.2)
    history = collect(series.store, "sort")
    (move,) = history.lines[0].moves
    assert (history.metric, move.at) == ("cpu_s", 12)
    assert move.change == pytest.approx(0.26, abs=0.03)
    assert sentence(history).startswith("cpu_s of sort: one change, +2")
    why = "Judged by CPU time (cpu_s): other programs had the CPU for up to 60% of the time"
    assert history.notes[0].startswith(why)
    assert why in page_of(history)
    assert to_mapping(history)["clock"].startswith("other programs had the CPU for up to 60%")
    by_wall = collect(series.store, "sort", metric="duration_s")
    assert (by_wall.metric, by_wall.notes) == ("duration_s", ())
    assert by_wall.lines[0].moves[0].change < -0.3


def test_few_runs_are_shown_and_not_judged(series):
    step(series, runs=3)
    history = collect(series.store, "sort")
    assert "3 of 3 runs have a value, too few to detect changes (at least 8 are needed)" in sentence(history)
    assert "5 more runs" in captions(history)[-1]
    page_of(history)


def test_a_run_that_the_infrastructure_broke_is_shown_and_left_out(series):
    step(series)
    series.points("sort", 20, 1.2, outcome=Outcome.WORKER_LOST)
    history = collect(series.store, "sort")
    assert history.runs[-1].left_out == "infrastructure or provider broke 1 of 1 trials"
    assert len(history.counted) == 20
    assert history.lines[0].values[-1] is None
    assert left_out(history) == ["left out of the statistics: sort-020: " + history.runs[-1].left_out]
    assert sparkline(history.lines[0]).endswith("·")
    assert "left out of the statistics: sort-020" in page_of(history)


def test_code_that_failed_leaves_a_gap_and_the_run_counts(series):
    step(series)
    series.points("sort", 20, 1.2, outcome=Outcome.FAILED)
    history = collect(series.store, "sort")
    assert not history.runs[-1].left_out
    assert history.lines[0].values[-1] is None


@pytest.mark.parametrize("status", [RunStatus.RUNNING, RunStatus.INTERRUPTED])
def test_rollouts_that_are_not_complete_are_left_out(series, status):
    series.rollouts("agents", 0, 0.5)
    series.rollouts("agents", 1, 0.5, status=status, total=100)
    history = collect(series.store, "agents")
    assert "60 of 100 trials" in history.runs[-1].left_out


def test_another_python_is_flagged_where_it_came(series):
    step(series, runs=4)
    series.points("sort", 4, 1.0, environment={"cpu_model": "Example", "python": {"version": "3.12.1"}})
    series.points("sort", 5, 1.0, environment={"cpu_model": "Example", "python": {"version": "3.12.1"}})
    history = collect(series.store, "sort")
    assert differences(history) == ["at run sort-004: python differs: version 3.11.7 → 3.12.1"]
    assert "python differs" in page_of(history)


def test_a_sweep_has_a_line_for_all_points_and_one_for_each(series):
    params = [{"size": size, "way": way} for size in (1, 2) for way in ("a", "b")]
    for number in range(16):
        series.points(
            "sweep",
            number,
            lambda each, number=number: 1.3 if number >= 8 and each["way"] == "b" else 1.0,
            params=params,
        )
    history = collect(series.store, "sweep")
    assert history.main[0].name == "all points together (geometric mean of 4)"
    assert history.main[0].moves[0].at == 8
    moved = {line.name for line in history.lines if line.moves and not line.main}
    assert moved == {"sorting(size=1, way=b)", "sorting(size=2, way=b)"}
    assert "Lasting changes" in page_of(history)
    only = collect(series.store, "sweep", only="WAY=A")
    assert {line.name for line in only.lines if "together" not in line.name} == {
        "sorting(size=1, way=a)",
        "sorting(size=2, way=a)",
    }


def test_a_few_points_that_moved_are_told_when_the_whole_did_not(series):
    params = [{"size": size} for size in range(1, 13)]
    for number in range(16):
        series.points(
            "wide",
            number,
            lambda each, number=number: 1.1 if number >= 8 and each["size"] == 3 else 1.0,
            params=params,
        )
    said = sentence(collect(series.store, "wide"))
    assert "no lasting change in 16 runs" in said
    assert "1 of 12 single lines changed, sorting(size=3) most: +" in said


def test_pass_rates_move_by_points_and_costs_and_times_come_along(series):
    for number in range(20):
        series.rollouts("agents", number, 0.8 if number < 10 else 0.3, broken=0.9 if number == 4 else 0.02)
    history = collect(series.store, "agents")
    (main,) = history.main
    assert (main.name, main.metric) == ("terminal/m1", "pass_rate")
    (move,) = main.moves
    assert move.at == 10
    assert move.change == pytest.approx(-0.5, abs=0.1)
    assert history.runs[4].left_out.startswith("infrastructure or provider broke")
    assert re.search(r"one change, -\d+ pp at run agents-010", sentence(history))
    assert [line.metric for line in history.lines[1:3]] == ["duration_s", "cost_usd"]
    value = main.values[0]
    assert value.low < value.value < value.high
    page = page_of(history)
    assert "mean cost of a rollout" in page
    assert "100 %" in page


def test_several_agents_are_several_main_lines(series):
    for number in range(9):
        series.rollouts("pair", number, 0.5, agents=("x", "y"), tasks=3)
    history = collect(series.store, "pair")
    assert [line.name for line in history.main] == ["x/m1", "y/m1"]
    assert any(line.name == "org/task-0 × y/m1" for line in history.lines)
    assert "no lasting change in 9 runs" in sentence(history)


def test_other_tasks_are_flagged(series):
    series.rollouts("agents", 0, 0.5, tasks=4)
    series.rollouts("agents", 1, 0.5, tasks=6)
    assert differences(collect(series.store, "agents")) == [
        ("at run agents-001: different tasks: 2 new, 0 removed")
    ]


@pytest.mark.parametrize("metric", ["reward", "duration_s", "cost_usd", "peak_memory_bytes"])
def test_any_number_of_a_rollout_can_be_followed(series, metric):
    for number in range(3):
        series.rollouts("agents", number, 0.5)
    history = collect(series.store, "agents", metric=metric)
    assert history.main[0].metric == metric
    assert all(value and value.n for value in history.main[0].values)


def test_mistakes_are_told_with_what_there_is(series):
    step(series, runs=2)
    series.rollouts("agents", 0, 0.5)
    with pytest.raises(NotFoundError, match="did you mean 'sort'"):
        collect(series.store, "sorrt")
    with pytest.raises(UsageError, match="did you mean 'duration_s'"):
        collect(series.store, "sort", metric="duration")
    with pytest.raises(UsageError, match="no rewards"):
        collect(series.store, "sort", metric="reward")
    with pytest.raises(UsageError, match="'nothing' in its name"):
        collect(series.store, "sort", only="nothing")
    with pytest.raises(UsageError, match="cost_usd"):
        collect(series.store, "agents", metric="cost_us")


def test_any_run_names_its_series_and_the_newest_runs_are_taken(series):
    step(series, runs=12)
    history = collect(series.store, "sort-003", last=5)
    assert [run.id for run in history.runs] == [f"sort-{number:03d}" for number in range(7, 12)]


def test_a_run_of_another_kind_under_the_same_name_is_left_out(series):
    series.rollouts("mixed", 0, 0.5)
    series.points("mixed", 1, 1.0)
    history = collect(series.store, "mixed")
    assert history.kind == "experiment"
    assert history.runs[0].left_out == "a run of tasks"


def test_of_very_many_points_the_first_are_followed_and_that_is_said(series, monkeypatch):
    monkeypatch.setattr(reading, "MOST_POINTS", 3)
    series.points("wide", 0, 1.0, params=[{"size": size} for size in range(1, 6)])
    history = collect(series.store, "wide")
    assert len([line for line in history.lines if not line.main]) == 3
    assert "only the first 3 of 5 points are followed" in history.notes[0]


def test_the_document_has_every_value_and_is_plain_json(series):
    step(series)
    found = json.loads(json.dumps(to_mapping(collect(series.store, "sort")), allow_nan=False))
    assert found["schema_version"] == 1
    assert len(found["runs"]) == len(found["lines"][0]["values"]) == 20
    change = found["lines"][0]["changes"][0]
    assert (change["run_id"], change["previous_run_id"]) == ("sort-010", "sort-009")
    assert change["interval_95"][0] < change["change"] < change["interval_95"][1]


def test_what_a_user_wrote_is_escaped(series):
    for number in range(2):
        series.points("<b>&", number, 1.0, params=[{"size": "<script>"}])
    page = page_of(collect(series.store, "<b>&"))
    assert "<script>" not in page
    assert "&lt;b&gt;&amp;" in page


def test_values_at_zero_are_shown_without_a_search_for_changes(series):
    for number in range(9):
        series.points("zero", number, 0.0)
    history = collect(series.store, "zero")
    assert history.lines[0].moves == ()
    assert "no lasting change in 9 runs." in sentence(history)
    page_of(history)
