"""The five usual rules, each with a run that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proctor.errors import Exit
from proctor.runfolder.perf import documents
from proctor.runfolder.perf.documents import PerfRun
from proctor.verdicts.perf.gate import default_rules, judge

MakeRun = Callable[..., PerfRun]


def verdict(run: PerfRun, **changed: Any) -> tuple[Exit, list[str]]:
    summary = {**documents.summary(run), **changed}
    result = judge(summary, documents.series(run)["episodes"])
    return result.exit_code, [each.written.text for each in result.results if each.verdict != "pass"]


def test_a_good_run_passes(make_run: MakeRun):
    assert verdict(make_run()) == (Exit.OK, [])


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"failure_count": 1}, "failure_count == 0"),
        ({"max_wall_clock_s": 15.5}, "max_wall_clock_s <= 15"),
        (
            {"run_artifacts": {"total_bytes": 2_000_001, "avg_bytes": 1.0}},
            "run_artifacts.total_bytes <= 2000000",
        ),
        ({"run_artifacts": {"total_bytes": 1, "avg_bytes": 150_001.0}}, "run_artifacts.avg_bytes <= 150_000"),
        ({"failure_reasons": {"agent_error: X": 1}}, "failure_reasons in []"),
    ],
)
def test_each_rule_can_break(make_run: MakeRun, changed: dict[str, Any], rule: str):
    assert verdict(make_run(), **changed) == (Exit.WORSE, [rule])


def test_a_longer_run_may_leave_as_much_more_as_it_is_longer():
    assert "run_artifacts.total_bytes <= 2000000" in default_rules(24, baseline=False)
    assert "run_artifacts.total_bytes <= 2000000" in default_rules(1, baseline=False)
    assert "run_artifacts.total_bytes <= 4000000" in default_rules(48, baseline=False)
    assert "no new failure reasons" in default_rules(24, baseline=True)
