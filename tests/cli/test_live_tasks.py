from __future__ import annotations

import io
import sys

import pytest

from proctor.cli.live_tasks import RUNNING, Grid, TaskLive
from proctor.model.outcome import Outcome, from_reward
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord, Failure
from proctor.model.trial import Lease


def trials(
    tasks: int = 2, rollouts: int = 3, agents: tuple[str, ...] = ("oracle", "nop")
) -> list[PlannedTrial]:
    made: list[PlannedTrial] = []
    for rollout in range(rollouts):
        for task in range(tasks):
            for agent in agents:
                made.append(
                    PlannedTrial(
                        key=f"k{len(made)}",
                        index=len(made),
                        kind="task",
                        subject=f"task-{task}",
                        subject_digest="d",
                        body=0,
                        agent=agent,
                        rollout=rollout,
                    )
                )
    return made


def lease(attempt: int = 1) -> Lease:
    return Lease(run_id="r", key="k", index=0, worker="w", fence=1, attempt=attempt, expires_at=1.0)


def record(trial: PlannedTrial, end: str | float) -> AttemptRecord:
    outcome = Outcome(end) if isinstance(end, str) else from_reward(end)
    failure = (
        None if outcome.scored else Failure(phase="start", type="SandboxError", message="no \x1b[2Jluck")
    )
    return AttemptRecord(
        key=trial.key, number=1, outcome=outcome, started_at=1.0, ended_at=2.5, failure=failure,
        reward=end if isinstance(end, float) else None,
    )  # fmt: skip


def test_a_log_gets_a_clean_line_per_trial_when_asked(capsys):
    planned = trials()
    with TaskLive(planned, verbose=1) as live:
        live.say("run 1")
        live.started(planned[0], lease())
        live.ended(planned[0], record(planned[0], 1.0), counts=True)
        live.ended(planned[1], record(planned[1], "sandbox_error"), counts=True)
        live.ended(planned[2], record(planned[2], "sandbox_error"), counts=False)
        assert live.status().startswith("2/12  ✓ 1  ✗ 0  errors 1  ")
    err = capsys.readouterr().err
    assert "[ 1/12] ✓ task-0 × oracle #1: passed, 1.5 s" in err
    assert "! task-0 × nop #1: sandbox_error" in err
    assert "will be tried again" in err
    assert "\x1b" not in err


def test_a_log_says_now_and_then_how_far_it_is(capsys, monkeypatch):
    planned = trials()
    with TaskLive(planned) as live:
        assert live.status().endswith("no trial has ended yet")
        live.ended(planned[0], record(planned[0], 1.0), counts=True)
        assert capsys.readouterr().err == ""
        monkeypatch.setattr("proctor.cli.live_tasks._QUIET_S", -1.0)
        live.ended(planned[1], record(planned[1], 0.0), counts=True)
    assert "2/12  ✓ 1  ✗ 1" in capsys.readouterr().err


def test_quiet_says_nothing(capsys):
    planned = trials()
    with TaskLive(planned, quiet=True) as live:
        live.say("hello")
        live.ended(planned[0], record(planned[0], "sandbox_error"), counts=True)
    assert capsys.readouterr().err == ""


def test_streams_are_whole_lines_with_their_trial_in_front(capsys):
    planned = trials()
    with TaskLive(planned, verbose=2) as live:
        live.started(planned[0], lease(attempt=2))
        live.logged(planned[0], "oracle.txt", b"one\ntw")
        live.logged(planned[1], "eval.log", b"other\r\n")
        live.logged(planned[0], "oracle.txt", b"o\x1b[2J\n\tthree")
        live.ended(planned[0], record(planned[0], 1.0), counts=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "task-0 × oracle #1: started (attempt 2)"
    assert "task-0 × oracle #1 oracle│ one" in lines
    assert "task-0 × nop #1 eval│ other" in lines
    assert "task-0 × oracle #1 oracle│ two�[2J" in lines
    assert "task-0 × oracle #1 oracle│     three" in lines


def test_a_line_without_an_end_is_cut_and_nothing_is_lost(capsys, monkeypatch):
    monkeypatch.setattr("proctor.cli.live_tasks._LONGEST_LINE", 10)
    planned = trials()
    with TaskLive(planned, verbose=2) as live:
        live.logged(planned[0], "a.txt", b"x" * 25)
    assert capsys.readouterr().err.count("x") == 25


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_grid_that_fills(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "30")
    monkeypatch.setenv("TERM", "xterm")
    planned = trials()
    with TaskLive(planned) as live:
        live.started(planned[0], lease())
        live.ended(planned[0], record(planned[0], 1.0), counts=True)
        live.ended(planned[1], record(planned[1], "provider_error"), counts=True)
        live.started(planned[2], lease())
        shown = live._render().plain
    assert "task-0  ✓··" in shown
    assert "P··" in shown
    assert f"task-1  {RUNNING}··" in shown
    assert "2/12  ✓ 1  ✗ 0  errors 1  running 1" in shown
    assert "provider_error" in screen.getvalue()
    assert "oracle #1: passed" not in screen.getvalue()


@pytest.mark.parametrize(("width", "height"), [(100, 40), (40, 40), (30, 8), (10, 3)])
def test_the_grid_fits_whatever_the_terminal(width, height):
    planned = trials(tasks=30, rollouts=20, agents=("an-agent-with-a-long-name", "nop", "third"))
    grid = Grid(planned)
    grid.put(planned[30], "✓", "green")
    lines = grid.text(width, height).plain.splitlines()
    assert len(lines) <= max(height, 5)
    if height < 30:
        assert "more tasks" in lines[-1]
        assert any("task-10" in line for line in lines)
