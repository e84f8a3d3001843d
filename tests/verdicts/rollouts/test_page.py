from __future__ import annotations

import re

import pytest
from tests.render.pages import EVIL, checked

from proctor.analysis.claim import Claim
from proctor.model.outcome import Outcome
from proctor.render.html.page import render
from proctor.render.rollouts import charts, matrix
from proctor.verdicts.rollouts.scores import rollouts


def test_the_page_has_score_matrix_curve_tasks_and_resources(rolled):
    page = render(rolled.comparison())
    text = " ".join(checked(page).text)
    order = ["Score", "Every rollout", "pass@k", "Tasks", "Time and resources", "Environment"]
    assert [text.index(each) for each in order] == sorted(text.index(each) for each in order)
    assert "Resource ledger" in text
    assert "Model use" in text
    assert "Hatched squares with a capital letter" in text
    assert re.findall(r"url\((?!#)", page) == []
    assert "http" not in page.replace("http-equiv", "")


def test_a_field_leads_to_its_trial(rolled):
    data = rolled.comparison()
    links = checked(render(data)).links
    assert "trials/config-edit/0/evaluation_results.json" in links
    retried = next(t for t in data.trials if t.counted and t.counted.number == 2)
    assert (
        f"trials/{retried.planned.subject}/{retried.planned.index}.attempt-2/evaluation_results.json" in links
    )


def test_nothing_a_user_wrote_becomes_markup(rolled):
    study = rolled.study().cell(EVIL, [1.0, 0.4, "sandbox_error", None], agent=EVIL, model=EVIL)
    study.cell("b", [1.0, 0.0], overrides={"environment_variables": {EVIL: EVIL}})
    page = render(study.data(name=EVIL))
    checked(page)
    assert "<script" not in page
    assert "<img" not in page


@pytest.mark.parametrize(
    "ends", [[None], ["sandbox_error"], [1.0], [0.0, 0.0], [1.0, 0.0], ["cancelled", "skipped"], [0.5]]
)
def test_odd_runs_make_a_sound_page(rolled, ends):
    checked(render(rolled.study().cell("only", ends).data()))


def test_every_outcome_has_a_look_of_its_own_without_colour():
    signs = {outcome: matrix.square(outcome, 0, 0, 20) for outcome in (*Outcome, None)}
    looks = {re.sub(r' class="[^"]*"', "", drawn) for drawn in signs.values()}
    alike = [{Outcome.VERIFIER_ERROR, Outcome.VERIFIER_TIMEOUT}, {Outcome.CANCELLED, Outcome.SKIPPED}]
    assert len(looks) == len(signs) - sum(len(each) - 1 for each in alike)
    for outcome in Outcome:
        assert ("mx-error" in signs[outcome]) == (matrix.css_class(outcome) == "mx-error")


def test_a_partial_reward_fills_as_much_as_was_earned():
    low, high = (matrix.square(Outcome.PARTIAL, 0, 0, 20, reward=reward) for reward in (0.25, 0.75))
    heights = [
        float(re.search(r'height="([\d.]+)" rx="[\d.]+" class="mx-level"', each)[1]) for each in (low, high)
    ]
    assert heights == [5.0, 15.0]


def test_arms_that_do_not_fit_go_below_and_very_many_fields_lose_their_tooltips(rolled):
    study = rolled.study()
    for agent in "abc":
        study.cell("t", [1.0] * 40, agent=agent)
    drawn = matrix.matrix(rollouts(study.data()))
    assert drawn.count("100 % passed") == 3
    assert drawn.count(">t</text>") == 3
    many = rolled.study().cell("t", [1.0] * (matrix.MOST_TOLD + 1))
    assert "<title>t ×" not in matrix.matrix(rollouts(many.data()))


def test_the_rates_show_both_ends_of_the_errors(rolled):
    run = rollouts(rolled.study().cell("a", [1.0, "starved"], agent="x").cell("a", [0.0], agent="y").data())
    drawn = charts.pass_rates(run.arms, Claim.THESE_TASKS)
    assert "errors as zero: 50 %" in drawn
    assert "best case: 100 %" in drawn


def test_a_flat_curve_is_said_not_drawn(rolled):
    flat = " ".join(checked(render(rolled.study().cell("a", [1.0] * 3).cell("b", [0.0] * 3).data())).text)
    assert "Every task always passes or always fails" in flat
    flaky = render(rolled.study().cell("a", [1.0, 0.0, 1.0]).cell("b", [0.0] * 3).data())
    assert "pass@2: " in flaky
    assert 'class="band"' in flaky


def test_phases_of_nothing_are_not_drawn(rolled):
    trial = rolled.planned(0, "a")
    bare = rolled.of([(trial, [rolled.record(trial, phases_s={}, ledger={})])])
    assert charts.phase_bars(rollouts(bare).arms) == ""
    assert "Time and resources" not in render(bare)


def test_large_runs_are_cut_and_say_so(rolled, monkeypatch):
    monkeypatch.setattr("proctor.render.rollouts.page.MOST_ROWS", 2)
    monkeypatch.setattr("proctor.render.rollouts.page.MOST_TRIALS", 2)
    page = render(rolled.comparison())
    assert "The first 2 of 9 tasks are drawn." in page
    assert "The first 2 of 180" in page
