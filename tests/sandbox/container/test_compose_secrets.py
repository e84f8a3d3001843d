"""Secrets of compose files are given by name: values would be on the engine's command line."""

from __future__ import annotations

import pytest

from proctor.errors import TaskError
from proctor.sandbox.container.compose import without_values
from proctor.sandbox.container.composition import used


def document(**services):
    return {"services": services, "networks": {}}


def test_a_secret_variable_is_passed_by_name():
    found, apart = without_values(
        document(
            main={"environment": ["A=x hunter22", "B=b"]}, db={"environment": {"A": "x hunter22"}}, c={}
        ),
        ["hunter22"],
    )
    assert found["services"] == {
        "main": {"environment": {"A": None, "B": "b"}},
        "db": {"environment": {"A": None}},
        "c": {},
    }
    assert apart == {"A": "x hunter22"}


@pytest.mark.parametrize(
    ("services", "said"),
    [
        (
            {"a": {"environment": {"A": "hunter22"}}, "b": {"environment": {"A": "-hunter22"}}},
            "needs another name",
        ),
        ({"a": {"environment": {"PATH": "hunter22"}}}, "needs another name"),
        ({"a": {"command": ["run", "hunter22"]}}, "outside of 'environment'"),
    ],
)
def test_what_would_be_seen_is_refused(services, said):
    with pytest.raises(TaskError, match=said):
        without_values(document(**services), ["hunter22"])


def test_the_variables_of_a_file_are_those_without_a_default(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("a: [$ONE, '${TWO} $$NO ${D:-d}', {b: '${ONE}'}]\n")
    assert used(file) == ["ONE", "TWO"]
    file.write_text("a: [")
    assert used(file) == used(tmp_path / "none.yaml") == []
