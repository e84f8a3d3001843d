from __future__ import annotations

import json

import pytest

from proctor.errors import TaskError
from proctor.model.spec import Criterion, JudgeSpec
from proctor.model.task import Rubric, Task
from proctor.trial.judge.criteria import WHOLE, criteria_of
from proctor.trial.judge.votes import NotAVote, Vote, agreement, joined, parse, unjudged, with_tests

CRITERIA = (Criterion(id="a", criterion="A.", weight=3), Criterion(id="b", criterion="B."))
TESTED = {"id": "a", "description": "A.", "weight": 3.0, "unit_score": 1.0, "judge_score": None}


def said(*rows: object) -> str:
    return json.dumps({"rubrics": rows})


def row(name: str, score: object = 1) -> dict[str, object]:
    return {"id": name, "score": score, "reason": "so"}


def vote(a: float, b: float) -> Vote:
    return Vote({"a": a, "b": b}, {"a": "", "b": ""})


def test_an_answer_may_have_words_around_its_object():
    found = parse(f"Here:\n```json\n{said(row('a', 0.5), row('b'))}\n```", CRITERIA)
    assert (found.scores, found.reasons["a"]) == ({"a": 0.5, "b": 1.0}, "so")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("full marks", "no JSON object"),
        ("{", "no JSON object"),
        ("{nothing}", "not valid JSON"),
        ('{"rubrics": 3}', "no list"),
        (said(row("a")), "does not score 'b'"),
        (said(row("a"), row("a"), row("b")), "twice"),
        (said(row("a"), row("b"), row("c")), "'c' is not the id"),
        (said(row("a"), "b"), "is not the id"),
        (said(row("a", "1"), row("b")), "not a number"),
        (said(row("a", True), row("b")), "not a number"),
        (said(row("a", float("nan")), row("b")), "not a number"),
        (said(row("a", 100), row("b")), "not between 0 and 1"),
        ("{" + "x" * (1 << 20) + "}", "too long"),
    ],
)
def test_an_answer_that_is_no_vote_says_why(answer, why):
    with pytest.raises(NotAVote, match=why):
        parse(answer, CRITERIA)


def test_a_rubric_has_the_median_of_its_votes_and_their_agreement():
    rows = joined([{**TESTED, "status": "tested"}], CRITERIA, [vote(0, 1), vote(1, 1), vote(0.2, 0.6)])
    assert [(each["id"], each["judge_score"], each["status"]) for each in rows] == [
        ("a", 0.2, "tested"),
        ("b", 1.0, "judged"),
    ]
    assert [each["agreement"] for each in rows] == [pytest.approx(1 / 3), 1.0]
    assert with_tests(rows, 1.0) == {"same": 0, "of": 1}
    assert unjudged(rows) == [{**TESTED, "status": "tested"}]


def test_one_vote_agrees_with_nobody():
    assert agreement([1.0]) is None


def test_the_whole_task_is_compared_with_its_tests_and_other_rubrics_are_not():
    whole = joined([], [WHOLE], [Vote({"task": 1.0}, {"task": ""})])
    assert with_tests(whole, 0.0) == {"same": 0, "of": 1}
    other = joined([], CRITERIA, [vote(1, 1)])
    assert with_tests(other, 0.0) == {"same": 0, "of": 0}


def test_an_untested_rubric_that_no_judge_scored_stays_untested():
    untested = {"id": "c", "weight": 1.0, "unit_score": None, "judge_score": None, "status": "untested"}
    assert joined([untested], CRITERIA, [vote(1, 1)])[0]["status"] == "untested"


def test_rubrics_come_from_the_spec_then_the_task_then_its_metadata(tmp_path):
    task = Task(name="t", path=tmp_path, digest="d")
    judge = JudgeSpec(model="m")
    assert criteria_of(task, judge) == (WHOLE,)
    told = Task(name="t", path=tmp_path, digest="d", metadata={"rubrics": ["Short.", {"criterion": "Good."}]})
    assert [each.id for each in criteria_of(told, judge)] == ["rubric-1", "rubric-2"]
    own = Task(name="t", path=tmp_path, digest="d", rubrics=(Rubric(id="x"), Rubric(id="y", weight=0)))
    assert criteria_of(own, judge) == (Criterion(id="x", criterion="x"),)
    assert criteria_of(own, JudgeSpec(model="m", rubrics=CRITERIA)) == CRITERIA


@pytest.mark.parametrize(
    ("rubrics", "why"),
    [
        ("Short.", "expected a list"),
        ([3], "expected a sentence"),
        ([{"text": "x"}], "'text' is not a key"),
        ([{"criterion": " "}], "no 'criterion'"),
        ([{"criterion": "x", "weight": 0}], "weight 0"),
        ([{"criterion": "x", "id": "a"}, {"criterion": "y", "id": "a"}], "the same id"),
    ],
)
def test_rubrics_in_metadata_that_cannot_be_read_are_the_tasks_mistake(tmp_path, rubrics, why):
    task = Task(name="t", path=tmp_path, digest="d", metadata={"rubrics": rubrics})
    with pytest.raises(TaskError, match=why):
        criteria_of(task, JudgeSpec(model="m"))
