"""Whatever an episode does to its process, every episode gets its outcome and the artifacts are complete."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import Exit, SandboxError, UsageError
from proctor.processes import all_processes, descendants, read_process
from proctor.runs.perf import guard
from proctor.runs.perf.run import PerfResult
from proctor.settings import Settings
from proctor.store.open import open_store

Run = Callable[..., PerfResult]
Outcomes = Callable[[PerfResult], list[str]]
Rows = Callable[[PerfResult], list[dict[str, Any]]]


@pytest.fixture
def outcomes(rows: Rows) -> Callable[[PerfResult], list[str]]:
    return lambda result: [row["outcome"] for row in rows(result)]


def test_a_crash_a_failure_and_a_hang_are_told_apart(run: Run, outcomes: Outcomes):
    result = run("rough_agents:Crash", "rough_agents:GivesUp", "rough_agents:Hang", "oracle", timeout_s=0.3)
    assert outcomes(result) == ["agent_error", "agent_error", "agent_timeout", "passed"]
    assert result.summary["failure_reasons"] == {
        "agent_error: AgentFailed": 1,
        "agent_error: ZeroDivisionError": 1,
        "agent_timeout: TimeoutError": 1,
    }
    assert result.exit_code is Exit.WORSE
    assert result.problems == ()


def test_an_episode_that_ends_the_process_is_found_among_those_that_ran_beside_it(
    run: Run, outcomes: Outcomes, rows: Rows
):
    agents = ["rough_agents:Good", "rough_agents:Leave", "rough_agents:Good", "rough_agents:Good"]
    result = run(*agents, episodes=8, workers=4)
    assert outcomes(result) == ["passed", "agent_error", "passed", "passed"] * 2
    guilty = rows(result)[1]
    assert guilty["error"].startswith("agent: HarnessEnded: the process ended with exit code 7")
    assert guilty["attempts"] > 1
    assert result.exit_code is Exit.WORSE
    assert result.problems == ()


def test_what_a_dead_process_left_behind_neither_blocks_nor_stays(run: Run, outcomes: Outcomes):
    import os

    before = {process.pid for process in all_processes()}
    result = run("rough_agents:LeaveOne", "oracle", workers=1)
    assert outcomes(result) == ["agent_error", "passed"]
    own = read_process(os.getpid())
    assert own is not None
    left = [each for each in all_processes() if each.pid not in before and each.session == own.session]
    assert [each for each in left if each.parent == 1 and not each.gone] == []


def test_an_interpreter_that_breaks_is_survived(run: Run, outcomes: Outcomes, rows: Rows):
    result = run("rough_agents:Segfault", "oracle", workers=1)
    assert outcomes(result) == ["agent_error", "passed"]
    assert "SIGSEGV" in rows(result)[0]["error"]


def test_an_agent_that_never_gives_the_loop_back_times_out(run: Run, outcomes: Outcomes, rows: Rows):
    result = run("rough_agents:Good", "rough_agents:Block", workers=1, timeout_s=0.3, grace_s=2.5)
    assert outcomes(result) == ["passed", "agent_timeout"]
    assert "hung" in rows(result)[1]["error"]


def test_nothing_is_left_running_after_rough_episodes(run: Run):
    import os

    before = {process.pid for process in descendants(os.getpid())}
    run("rough_agents:Leave", "rough_agents:Hang", "rough_agents:Good", workers=3, timeout_s=0.2)
    assert {process.pid for process in descendants(os.getpid())} <= before


def test_lost_attempts_of_the_innocent_are_kept_and_do_not_count(run: Run, settings: Settings):
    result = run("rough_agents:Leave", "rough_agents:Hang", workers=2, timeout_s=0.4)
    with open_store(settings.store_url) as store:
        kept = [
            (row.trial.index, row.record.outcome.value, row.counts)
            for row in store.attempts(result.summary["run_id"])
        ]
    assert ("worker_lost", False) in {each[1:] for each in kept}
    assert [each[1] for each in kept if each[2]] == ["agent_error", "agent_timeout"]


def test_an_expected_failure_is_no_failure(run: Run, outcomes: Outcomes):
    result = run(
        {"agent": "rough_agents:Crash", "expect": ["agent_error"]},
        {"agent": "nop", "expect": "failed"},
        {"agent": "oracle"},
    )
    assert outcomes(result) == ["agent_error", "failed", "passed"]
    assert result.summary["failure_count"] == 0
    assert result.exit_code is Exit.OK


def test_a_pass_that_nobody_expected_is_a_failure(run: Run, rows: Rows):
    result = run({"agent": "oracle", "expect": "failed"})
    assert result.summary["failure_reasons"] == {"passed unexpectedly": 1}
    assert rows(result)[0]["error"] == "ended as passed (reward 1), but failed was expected"
    assert result.exit_code is Exit.WORSE


def test_a_harness_that_dies_without_an_episode_says_so(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    import os

    async def die(*_: Any) -> dict[str, Any]:
        os._exit(3)

    monkeypatch.setattr(guard, "work", die)
    with pytest.raises(SandboxError, match="ended with exit code 3 while no episode ran"):
        run("oracle")


def test_an_error_of_the_harness_comes_through_with_its_exit_code(run: Run, monkeypatch: pytest.MonkeyPatch):
    async def refuse(*_: Any) -> dict[str, Any]:
        raise UsageError("that will not do")

    monkeypatch.setattr(guard, "work", refuse)
    with pytest.raises(guard._Told, match="that will not do") as caught:
        run("oracle")
    assert caught.value.exit_code is Exit.USAGE


def test_a_bug_of_the_harness_comes_through_with_its_traceback(run: Run, monkeypatch: pytest.MonkeyPatch):
    async def break_down(*_: Any) -> dict[str, Any]:
        raise KeyError("oops")

    monkeypatch.setattr(guard, "work", break_down)
    with pytest.raises(guard._Told, match="KeyError: 'oops'") as caught:
        run("oracle")
    assert caught.value.exit_code is Exit.INFRASTRUCTURE
