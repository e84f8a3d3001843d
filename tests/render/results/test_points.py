from __future__ import annotations

import re

import pytest
from msgspec.structs import replace
from tests.render.pages import EVIL, checked, render

from proctor.model.outcome import Outcome
from proctor.model.record import Artifact, Failure
from proctor.model.trial import RunStatus
from proctor.quantity import moment
from proctor.render.document.html import prose
from proctor.render.document.html import sections as drawn_sections
from proctor.render.results import figures, points
from proctor.render.results.run import run_document
from proctor.verdicts.run import survey as surveys
from proctor.verdicts.run.survey import survey


def failed(data) -> str:
    return drawn_sections(tuple(each for each in run_document(data).sections if each.name == "failures"))


def drawn(group, metric="duration_s") -> str:
    from proctor.model.document import Section

    return drawn_sections((Section(blocks=tuple(figures.sweep_charts(group, metric))),))


def test_the_page_is_sound_and_asks_for_nothing(any_run):
    page = render(any_run)
    checked(page)
    assert "http:" not in page
    assert "https:" not in page
    assert "url(#hatch)" in page
    assert re.findall(r"url\((?!#)", page) == []
    assert "default-src &#x27;none&#x27;" in page


def test_the_sentence_comes_first_and_charts_follow(runs):
    text = " ".join(checked(render(runs.single())).text)
    assert text.index("sort_list takes") < text.index("Results") < text.index("Environment")
    assert render(runs.single()).count("<svg") == 2
    assert render(runs.lines()).count("<svg") == 4
    assert render(runs.two()).count("<svg") == 4


def test_nothing_a_user_wrote_becomes_markup(runs):
    trial = runs.planned(0, {EVIL: EVIL, "a": 1}, subject=EVIL)
    other = runs.planned(1, {EVIL: 2, "a": 2}, subject=EVIL)
    artifact = Artifact(name=f"javascript:{EVIL}", digest="a" * 64, size_bytes=1)
    bad = runs.attempt(
        trial,
        [0.1] * 6,
        outcome=Outcome.FAILED,
        failure=Failure(phase=EVIL, type=EVIL, message=EVIL, traceback=EVIL),
        notes=(EVIL,),
        artifacts=(artifact,),
        metrics={EVIL: [1.0] * 6},
    )
    lost = replace(bad, number=0, outcome=Outcome.WORKER_LOST)
    good = runs.attempt(other, [0.2] * 6, metrics={EVIL: [2.0] * 6})
    data = runs.of([(trial, [lost, bad]), (other, [good])], name=EVIL)
    data = runs.renamed(
        data,
        id=EVIL,
        notes=EVIL,
        tags=(EVIL,),
        environment={EVIL: EVIL, "nested": {EVIL: EVIL}, "cpu_model": EVIL, "many": [EVIL]},
        vcs={"commit": EVIL, EVIL: EVIL},
        versions={EVIL: EVIL, "proctor": EVIL},
        spec={EVIL: EVIL},
        resolved={EVIL: EVIL},
    )
    checker = checked(render(data))
    assert "alert(1)" in "".join(checker.text)


def test_identical_failures_are_told_once_with_their_traceback(runs):
    failure = Failure(phase="execute_once", type="ValueError", message="no", traceback="Traceback: line 3")
    pairs = [
        (t := runs.planned(at, {"a": at}), [runs.attempt(t, [], outcome=Outcome.FAILED, failure=failure)])
        for at in range(8)
    ]
    page = failed(runs.of(pairs))
    assert page.count("<article") == 1
    assert "8×" in page
    assert "and 3 more" in page
    assert "Traceback: line 3" in page


def test_an_unsolved_task_is_no_failure_of_the_run(runs):
    page = failed(runs.rollouts())
    assert "sandbox error" in page
    assert ">failed<" not in page


def test_big_runs_are_cut_with_a_note(runs, monkeypatch):
    for module, name in ((points, "MOST_ROWS"), (points, "MOST_METRICS"), (figures, "MOST_ROWS")):
        monkeypatch.setattr(module, name, 3)
    monkeypatch.setattr("proctor.render.charts.iterations.PANELS", 2)
    monkeypatch.setattr(surveys, "MOST_FAILURES", 1)
    monkeypatch.setattr(surveys, "MOST_ATTEMPTS", 1)
    monkeypatch.setattr("proctor.render.results.run.MOST_FILES", 1)
    pairs = []
    for at in range(6):
        trial = runs.planned(at, {"a": at, "b": at * at, "c": -at, "d": str(at)})
        extra = {f"m{n}": [float(n)] * 6 for n in range(5)}
        files = tuple(Artifact(name=f"f{n}", digest=f"{n}" * 64, size_bytes=9) for n in range(2))
        tries = [runs.attempt(trial, [], outcome=Outcome.WORKER_LOST, number=n) for n in (1, 2)]
        tries.append(runs.attempt(trial, [0.1 + at] * 6, metrics=extra, artifacts=files, number=3))
        pairs.append((trial, tries))
    failing = []
    for at in (6, 7):
        trial = runs.planned(at, {"a": at, "b": 0, "c": 0, "d": ""})
        failure = Failure(phase="setup", type=f"E{at}", message="m")
        failing.append((trial, [runs.attempt(trial, [], outcome=Outcome.FAILED, failure=failure)]))
    page = render(runs.of([*pairs, *failing]))
    checked(page)
    for note in (
        "And 5 more; metrics.json lists all of them",
        "The first 3 of 6 points are drawn",
        "The first 2 of 6 points are drawn",
        "2 more metrics are in metrics.json",
        "1 other kinds of failure",
        "And 11 more; series.jsonl lists all of them",
        "More files are under trials/",
    ):
        assert note in page


def test_many_subjects_are_cut_too(runs, monkeypatch):
    monkeypatch.setattr(points, "MOST_GROUPS", 2)
    pairs = [(t := runs.planned(at, {}, subject=f"s{at}", body=at), [runs.attempt(t)]) for at in range(4)]
    page = render(runs.of(pairs))
    assert "2 more subjects are in metrics.json" in page


def test_large_samples_say_how_they_are_drawn(runs):
    page = render(runs.single(1500))
    assert "400 dots of each point are drawn" in page
    assert "range of neighbouring iterations" in page
    assert len(page) < 80_000


def test_three_parameters_give_a_chart_for_each_value_of_the_third(runs, monkeypatch):
    monkeypatch.setattr(figures, "MOST_FACETS", 2)
    pairs = []
    for mode in ("x", "y", "z"):
        for a in (1, 2, 3):
            for b in (10, 20, 30, 40):
                trial = runs.planned(len(pairs), {"a": a, "b": b, "mode": mode})
                pairs.append((trial, [runs.attempt(trial, [a * b * 1.0])]))
    (group,) = survey(runs.of(pairs)).groups
    page = drawn(group)
    assert "Duration over b, mode=x" in page
    assert "Duration over b and a, mode=y" in page
    assert "mode=z" not in page
    assert "Drawn for 2 of 3 values" in page


def test_two_categories_give_a_map_and_more_than_three_parameters_none(runs):
    def group(params):
        pairs = [(t := runs.planned(at, p), [runs.attempt(t)]) for at, p in enumerate(params)]
        return survey(runs.of(pairs)).groups[0]

    categories = [{"a": a, "b": b} for a in ("p", "q") for b in (True, False)]
    assert "<svg" in drawn(group(categories))
    one = [{"a": a} for a in ("p", "q")]
    assert figures.sweep_charts(group(one), "duration_s") == []
    four = [{"a": a, "b": a, "c": a, "d": a} for a in (1, 2)]
    assert figures.sweep_charts(group(four), "duration_s") == []
    wide = [{"a": f"{a}", "b": f"{b}"} for a in range(2) for b in range(35)]
    assert figures.sweep_charts(group(wide), "duration_s") == []


def test_charts_are_left_out_where_nothing_was_measured(runs):
    pairs = [
        (t := runs.planned(at, {"a": at, "b": f"{at}"}), [runs.attempt(t, [], outcome=Outcome.FAILED)])
        for at in range(3)
    ]
    data = runs.of(pairs)
    assert "<svg" not in render(data)
    lone = runs.planned()
    assert "no result" in render(runs.of([(lone, [])], status=RunStatus.RUNNING))


def test_every_point_leads_to_its_result(runs):
    links = checked(render(runs.lines())).links
    assert {f"trials/sort_list/{at}/result.json" for at in range(7)} <= set(links)
    assert {"report.md", "SWEEP_SUMMARY.md", "summary.json"} <= set(links)


def test_a_long_line_of_points_is_thinned_evenly(runs, monkeypatch):
    monkeypatch.setattr(figures, "MOST_MARKS", 3)
    (group,) = survey(runs.lines()).groups
    page = drawn(group)
    assert "Of 7 points 3 are drawn." in page
    assert page.count('class="f"><title>') == 3


def test_the_pass_over_the_trials_keeps_places_and_no_trials(runs):
    """A report of a large run must not hold its trials: they are read as they are asked for."""
    data = runs.failures()
    found = survey(data)
    assert not any(isinstance(value, type(data.trials[0])) for value in vars_of(found))
    assert [len(group.trials) for group in found.groups] == [len(group.medians) for group in found.groups]


def vars_of(found) -> list[object]:
    inside = [getattr(found, name) for name in found.__slots__]
    return [*inside, *(item for each in inside if isinstance(each, list | tuple | dict) for item in each)]


def test_numbers_stay_with_their_units():
    assert prose("takes 1.2 ms (95 % interval 1 – 2 µs)") == (
        "takes 1.2\u00a0ms (95\u00a0% interval 1\u00a0–\u2060\u00a02\u00a0µs)"
    )


@pytest.mark.parametrize(
    ("at", "shown"), [(0.0, "1970-01-01 00:00:00 UTC"), (None, "–"), (1e30, "–"), (-5.0, "–")]
)
def test_moments_are_in_utc_and_absurd_ones_are_not_shown(at, shown):
    assert moment(at) == shown


@pytest.mark.needs("chromium")
def test_a_browser_opens_the_page_from_disk_without_complaint(tmp_path, runs):
    import subprocess

    page = tmp_path / "report.html"
    page.write_text(render(runs.two()))
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command += [
        f"--user-data-dir={tmp_path / 'profile'}",
        "--enable-logging=stderr",
        "--dump-dom",
        page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "Duration over size and algorithm" in done.stdout
    assert "CONSOLE" not in done.stderr
