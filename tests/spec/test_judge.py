from __future__ import annotations

from pathlib import Path

import pytest

from proctor.errors import SpecError
from proctor.model.spec import Criterion, JudgeSpec
from proctor.spec.load import from_mapping, load


def read(tmp_path: Path, judge: str) -> JudgeSpec | None:
    file = tmp_path / "s.yaml"
    file.write_text(f"tasks:\n  - path: a\n    judge: {judge}\n")
    return load(file).tasks[0].judge


def test_a_judge_is_the_name_of_a_model_or_a_mapping(tmp_path):
    assert read(tmp_path, "m") == JudgeSpec(model="m")
    assert read(tmp_path, "") is None
    found = read(tmp_path, "{model: m, votes: 5, rubrics: [Short., {id: x, criterion: Good., weight: 2}]}")
    assert found is not None
    assert found.votes == 5
    assert found.rubrics == (
        Criterion(id="rubric-1", criterion="Short."),
        Criterion(id="x", criterion="Good.", weight=2.0),
    )


def test_a_stored_spec_is_read_back_with_its_judge():
    judge = {"model": "m", "rubrics": ["Short."], "budget_usd": 1, "reward": "judge"}
    first = from_mapping({"name": "s", "tasks": [{"path": "a"}], "judge": judge})
    assert from_mapping(first.to_mapping()).tasks == first.tasks
    assert first.tasks[0].judge is not None


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        ("{}", "s.yaml:3:5: 'judge' has no 'model'"),
        ("{modle: m}", "did you mean 'model'"),
        ("{model: m, votes: 0}", "s.yaml:3:30: 'votes': expected at least 1"),
        ("{model: m, reward: both}", "'both' is not allowed here"),
        ("{model: m, rubrics: Short.}", "a list of rubrics"),
        ("{model: m, rubrics: [{id: x}]}", "no 'criterion'"),
        ("{model: m, rubrics: [{id: a b, criterion: x}]}", "not a valid id"),
        ("{model: m, rubrics: [{id: x, criterion: x}, {id: x, criterion: y}]}", "'x' is listed twice"),
        ("{model: m, rubrics: [{criterion: x, wieght: 2}]}", "did you mean 'weight'"),
        ("3", "the name of a model or a mapping"),
    ],
)
def test_a_wrong_judge_is_refused_with_its_place(tmp_path, judge, message):
    with pytest.raises(SpecError) as error:
        read(tmp_path, judge)
    assert message in str(error.value)
