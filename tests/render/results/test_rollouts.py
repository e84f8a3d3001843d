from __future__ import annotations

import re

import pytest
from tests.render.pages import EVIL, checked, render

from proctor.model.document import Matrix, Sign
from proctor.model.outcome import Outcome
from proctor.render.document import html, terminal
from proctor.render.results import matrix as matrices
from proctor.render.results import rollouts as results
from proctor.render.results.cells import GLYPHS, glyph, look
from proctor.render.results.run import brief, run_document


def matrix_of(data) -> Matrix:
    (section,) = (each for each in run_document(data).sections if each.name == "matrix")
    (block,) = section.blocks
    assert isinstance(block, Matrix)
    return block


def printed(data, room: int | None = None) -> list[str]:
    return [line.text for line in terminal.lines(brief(data), room)]


def test_the_page_has_score_matrix_curve_tasks_and_resources(rolled):
    page = render(rolled.comparison())
    text = " ".join(checked(page).text)
    order = ["Score", "Every rollout", "pass@k", "Tasks", "Time and resources", "Environment"]
    assert [text.index(each) for each in order] == sorted(text.index(each) for each in order)
    assert "Resource ledger" in text
    assert "Model use" in text
    assert "Hatched squares with a capital letter" in text
    assert "Model use" in "\n".join(printed(rolled.comparison())), "spending is told in a terminal too"
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


def test_every_outcome_has_a_sign_of_its_own_without_colour():
    alike = [{Outcome.VERIFIER_ERROR, Outcome.VERIFIER_TIMEOUT}, {Outcome.CANCELLED, Outcome.SKIPPED}]
    signs = {glyph(each) for each in (*Outcome, None)}
    assert len(signs) == len(GLYPHS) + 1 - sum(len(each) - 1 for each in alike)
    for outcome in Outcome:
        capital = glyph(outcome).isupper() or glyph(outcome) == "?"
        assert (look(outcome) == "error") == capital, "what the agent did not cause has a capital"
        assert glyph(outcome) in html._sign(Sign(text=glyph(outcome), look=look(outcome)))


def test_a_partial_reward_fills_as_much_as_was_earned(rolled):
    ((_, (signs,)),) = matrix_of(rolled.study().cell("a", [0.25, 0.75]).data()).rows
    assert [sign.level for sign in signs] == [0.25, 0.75]
    assert 'style="--v:75"' in html._sign(signs[1])


def test_very_many_signs_lose_their_words_and_still_more_become_tasks(rolled, monkeypatch):
    monkeypatch.setattr(matrices, "MOST_NOTED", 2)
    data = rolled.study().cell("t", [1.0, 0.0, 1.0]).cell("u", [0.0]).data()
    assert not any(sign.tooltip or sign.href for _, cells in matrix_of(data).rows for sign in cells[0])
    monkeypatch.setattr(matrices, "MOST_SIGNS", 3)
    data.memo.clear()
    rows = matrix_of(data).rows
    assert [(label, [sign.text for sign in cells[0]]) for label, cells in rows] == [("oracle", ["◐", "✗"])]
    assert "One square per task" in render(data)
    assert "0 of 2 tasks always pass, 1 sometimes, 1 never" in render(data)


def test_a_terminal_has_the_matrix_in_letters_and_columns_that_do_not_fit_go_below(rolled):
    study = rolled.study()
    for agent in ("one-agent-with-a-name", "another-agent-with-a-name", "c"):
        study.cell("t", [1.0] * 30 + ["starved"], agent=agent)
    lines = printed(study.data(), 60)
    assert "A = one-agent-with-a-name" in lines
    assert sum(line.startswith("t  ") and "✓M" in line for line in lines) == 3
    assert "✓ passed   M starved (not scored)" in lines


def test_the_rates_show_both_ends_of_the_errors(rolled):
    data = rolled.study().cell("a", [1.0, "starved"], agent="x").cell("a", [0.0], agent="y").data()
    page = render(data)
    assert "errors as zero: 50 %" in page
    assert "best case: 100 %" in page


def test_a_flat_curve_is_said_not_drawn(rolled):
    flat = " ".join(checked(render(rolled.study().cell("a", [1.0] * 3).cell("b", [0.0] * 3).data())).text)
    assert "Every task always passes or always fails" in flat
    flaky = render(rolled.study().cell("a", [1.0, 0.0, 1.0]).cell("b", [0.0] * 3).data())
    assert "pass@2: " in flaky
    assert 'class="band"' in flaky


def test_phases_of_nothing_are_not_drawn(rolled):
    trial = rolled.planned(0, "a")
    bare = rolled.of([(trial, [rolled.record(trial, phases_s={}, ledger={})])])
    assert "An average trial" not in render(bare)
    assert "Time and resources" not in render(bare)


def test_large_runs_are_cut_and_say_so(rolled, monkeypatch):
    monkeypatch.setattr(matrices, "MOST_ROWS", 2)
    monkeypatch.setattr(results, "MOST_TRIALS", 2)
    page = render(rolled.comparison())
    assert "And 7 more; task_results/ lists all of them." in page
    assert "And 178 more; series.jsonl lists all of them." in page


def test_reasons_and_the_logs_to_read_are_in_every_form(rolled):
    data = rolled.study().cell("a", ["sandbox_error", 0.0], agent="mini").data()
    command = f"proctor logs {data.info.id} 1"
    for shown in (render(data), "\n".join(printed(data))):
        assert "a: the sandbox" in shown.replace("&lt;", "<")
        assert command in shown
