from __future__ import annotations

import json
from dataclasses import replace

import pytest

from proctor.errors import NotFoundError, UsageError
from proctor.verdicts.gate.baselines import missing, pin, read_baselines, thinned, write_baselines
from proctor.verdicts.gate.inputs import input_of_run


def pinned(run, name="main", known=None, **more):
    return pin(known or {}, name, run, **{"run_name": "r", "reason": "because", "at": 100.0, **more})


def test_what_was_pinned_gates_as_the_run_itself_would(tmp_path, runs, gate):
    data = runs.lines()
    run = replace(
        input_of_run(data), noise={"duration_s": {"sigma": 0.02, "df": 5.0, "source": "earlier runs"}}
    )
    path = tmp_path / "deep" / "b.json"
    write_baselines(path, pinned(run, commit="abc"))
    found = read_baselines(path)["main"]
    rules = ["duration_s not slower than 5%", "metrics.duration_s.p95 <= baseline", "no new failure reasons"]
    assert gate(rules, run, found.run) == gate(rules, run, run)
    assert (found.reason, found.commit, found.run_id) == ("because", "abc", data.info.id)
    assert found.run.digest == run.digest


def test_a_suite_of_agents_survives_the_file_whole(tmp_path, runs):
    run = input_of_run(runs.rollouts())
    write_baselines(tmp_path / "b.json", pinned(run))
    found = read_baselines(tmp_path / "b.json")["main"].run
    assert found.results.tasks == run.results.tasks
    assert (found.trials, found.broken, found.reasons) == (run.trials, run.broken, run.reasons)


def test_the_file_is_sorted_with_a_line_for_every_point(tmp_path, runs):
    path = tmp_path / "b.json"
    known = pinned(input_of_run(runs.lines()), "zeta")
    write_baselines(path, pinned(input_of_run(runs.single()), "alpha", known))
    text = path.read_text()
    assert text.index('"alpha"') < text.index('"zeta"')
    assert sum('"name":"sort_list(' in line for line in text.splitlines()) == 8
    assert json.loads(text)["schema_version"] == 1
    write_baselines(path, read_baselines(path))
    assert path.read_text() == text


def test_two_branches_that_pin_different_names_share_no_changed_line(tmp_path, runs):
    base = pinned(input_of_run(runs.single()), "main")
    write_baselines(tmp_path / "base", base)
    ours = {**base, **pinned(input_of_run(runs.single()), "a")}
    write_baselines(tmp_path / "ours", ours)
    before, after = ((tmp_path / name).read_text().splitlines() for name in ("base", "ours"))
    assert [line for line in before if line not in after] == []


def test_an_update_keeps_the_history_and_its_reasons(tmp_path, runs):
    known = pinned(input_of_run(runs.single()))
    again = pin(
        known, "main", input_of_run(runs.lines()), run_name="r", reason="faster", at=200.0, update=True
    )["main"]
    assert [each["reason"] for each in again.history] == ["because", "faster"]
    assert again.at == 200.0
    write_baselines(tmp_path / "b.json", {"main": again})
    assert read_baselines(tmp_path / "b.json")["main"].history == again.history


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"name": ""}, "is not a valid baseline name"),
        ({"name": "a\nb"}, "is not a valid baseline name"),
        ({"reason": " "}, "give a reason"),
        ({"update": True}, "none is pinned yet"),
    ],
)
def test_a_pin_without_name_or_reason_is_refused(runs, more, words):
    with pytest.raises(UsageError, match=words):
        pinned(input_of_run(runs.single()), **more)


def test_a_name_is_not_taken_over_and_half_a_run_is_not_pinned(runs):
    run = input_of_run(runs.single())
    with pytest.raises(UsageError, match="baseline update main RUN"):
        pinned(run, known=pinned(run))
    with pytest.raises(UsageError, match="finish it first"):
        pinned(replace(run, missing=2))
    with pytest.raises(NotFoundError, match="did you mean 'main'"):
        raise missing("mian", pinned(run))


def test_a_run_of_very_many_points_is_not_for_git(runs):
    run = input_of_run(runs.single())
    many = replace(run, results=replace(run.results, points=run.results.points * 10_001))
    with pytest.raises(UsageError, match=f"--baseline {run.results.run_id}"):
        pinned(many)


def test_thinning_keeps_the_distribution():
    values = [float(each) for each in range(1000)]
    kept = thinned(values[::-1], 50)
    assert len(kept) == 50
    assert kept == sorted(kept)
    assert kept[0] == 10
    assert abs(kept[25] - 500) < 20
    assert thinned([3.0, 1.0], 50) == [3.0, 1.0]


def test_no_file_is_no_baseline(tmp_path):
    assert read_baselines(tmp_path / "b.json") == {}
    write_baselines(tmp_path / "b.json", {})
    assert read_baselines(tmp_path / "b.json") == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not valid JSON"),
        ("[]", "not a file of baselines"),
        ('{"schema_version": 9, "baselines": {}}', "version 9"),
        ('{"schema_version": 1, "baselines": {"x": {}}}', "'points' is missing"),
        ('{"schema_version": 1, "baselines": {"x": 3}}', "not as Proctor writes it"),
        ("<<<<<<< ours\n=======\n>>>>>>> theirs\n", "conflict markers"),
    ],
)
def test_a_strangers_file_is_refused_with_the_reason(tmp_path, text, words):
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(UsageError, match=words):
        read_baselines(tmp_path / "b.json")


def test_a_folder_is_not_a_file_of_baselines(tmp_path):
    with pytest.raises(UsageError, match="not a file"):
        read_baselines(tmp_path)


def test_a_value_that_is_no_number_is_refused(tmp_path, runs):
    path = tmp_path / "b.json"
    write_baselines(path, pinned(input_of_run(runs.rollouts())))
    path.write_text(path.read_text().replace('"scored":[', '"scored":["x",', 1))
    with pytest.raises(UsageError, match="a value is not a number"):
        read_baselines(path)
