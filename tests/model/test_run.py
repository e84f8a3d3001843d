from __future__ import annotations

import pytest

from proctor.model.run import Execution, RunInfo, written_regrade, written_vetting
from proctor.model.trial import RunStatus


def run(**more) -> RunInfo:
    known = {"kind": "task", "status": RunStatus.DONE, "created_at": 1.0, "seed": 0}
    return RunInfo(id="r", name="n", **(known | more))


@pytest.mark.parametrize(
    ("kind", "written", "execution"),
    [
        ("experiment", {"experiment": "noop"}, Execution.EXPERIMENT),
        ("task", {"tasks": []}, Execution.TASK),
        ("task", written_regrade("r0", {}), Execution.REGRADE),
        ("task", written_vetting(["tasks/a"]), Execution.VET),
        ("task", {"perf": "usual", "scenario": []}, Execution.PERF),
    ],
)
def test_a_run_of_an_earlier_version_says_by_its_written_spec_how_it_is_executed(kind, written, execution):
    assert run(kind=kind, spec=written).execution is execution


def test_what_a_run_says_itself_decides():
    assert run(spec={"tasks": []}, execution=Execution.VET).execution is Execution.VET


def test_a_regrade_knows_the_run_that_it_grades():
    assert run(spec=written_regrade("r0", {"tasks": []})).graded_run == "r0"
    assert run().graded_run == ""
