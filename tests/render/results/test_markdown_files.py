from __future__ import annotations

from proctor.model.outcome import Outcome
from proctor.model.record import Failure
from proctor.render.document.markdown import markdown
from proctor.render.results import folder, points
from proctor.render.results.run import run_document


def report(data) -> str:
    return markdown(run_document(data))


def sweep_summary(data) -> str:
    return markdown(points.sweep_summary(data))


def outside_code(text: str) -> str:
    """What Markdown acts on: not what stands between fences, letter by letter."""
    return "".join(text.split("```")[::2])


def readme(data) -> str:
    return markdown(folder.readme(data))


def test_the_report_has_headline_warnings_table_failures_and_facts(runs):
    text = report(runs.failures())
    assert text.startswith("# pragma\\_profile\\_baseline\n")
    assert "✅ passed | **12.5 ms** |" in text
    assert "| extra | no result | **–** |" in text
    assert "## Failures" in text
    assert "needed more than one attempt" in text
    assert "- seed: 7" in text


def test_a_sweep_is_ranked_against_its_fastest_point(runs):
    text = sweep_summary(runs.two())
    rows = [line for line in text.splitlines() if "size=" in line and line.startswith("|")]
    assert rows[0].startswith("| [size=100, algorithm=timsort](trials/")
    assert rows[0].endswith("| the fastest |")
    assert "size=100000, algorithm=insertion](" in rows[-1]
    assert "❌ agent timeout | **–** |" in rows[-1]


def test_user_text_cannot_break_out_of_its_cell(runs):
    evil = "a|b\n# title <script> [x](javascript:1) `code`"
    trial = runs.planned(0, {"p": evil}, subject=evil)
    failure = Failure(phase="setup", type="E", message=evil)
    other = runs.planned(1, {"p": "fine"}, subject=evil)
    data = runs.of(
        [
            (trial, [runs.attempt(trial, [], outcome=Outcome.FAILED, failure=failure)]),
            (other, [runs.attempt(other)]),
        ],
        name=evil,
    )
    data = runs.renamed(data, notes=evil)
    for text in map(outside_code, (report(data), sweep_summary(data), readme(data))):
        assert "<script>" not in text
        assert "\n# title" not in text
        assert "](javascript" not in text.replace("\\](", "")
        for line in text.splitlines():
            if line.startswith("|"):
                assert "a|b" not in line


def test_large_runs_are_cut_with_a_note(runs, monkeypatch):
    monkeypatch.setattr(points, "MOST_ROWS", 2)
    assert "And 5 more; metrics.json lists all of them." in report(runs.lines())
    assert "And 5 more; metrics.json lists all of them." in sweep_summary(runs.lines())
    failure = Failure(phase="p", type="t", message="m")
    many = [
        (t := runs.planned(at, {"a": at}), [runs.attempt(t, [], outcome=Outcome.FAILED, failure=failure)])
        for at in range(60)
    ]
    assert "and 55 more" in report(runs.of(many))


def test_the_readme_says_what_each_file_is(runs):
    text = readme(runs.lines())
    for name in (
        "report.html",
        "manifest.json",
        "series.jsonl",
        "metrics.json",
        "SWEEP_SUMMARY.md",
        "spec.json",
    ):
        assert f"({name})" in text
    assert "SWEEP" not in readme(runs.single())


def test_rollouts_show_a_sign_for_each(runs):
    text = report(runs.rollouts()).replace("\\", "")
    assert "| org/fix-the-bug | `" in text
    assert "`S` sandbox error (not scored)" in text
