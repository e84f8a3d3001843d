"""From an attempt to a row: phases, waiting, reasons, traces."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord, Failure
from proctor.runfolder.perf.episode import PHASES, Episode, Trace, episode, read_trace, with_queue

MakeEpisode = Callable[..., Episode]
TRIAL = PlannedTrial(
    key="k", index=3, kind="task", subject="perf/a", subject_digest="0123456789abcdef", body=0, agent="oracle"
)


def record(**changed: Any) -> AttemptRecord:
    usual: dict[str, Any] = {
        "key": "k",
        "number": 1,
        "outcome": Outcome.PASSED,
        "started_at": 100.0,
        "ended_at": 101.0,
        "reward": 1.0,
        "phases_s": {"image": 0.1, "start": 0.1, "setup": 0.05, "agent": 0.4, "verify": 0.2, "stop": 0.1},
    }
    return AttemptRecord(**{**usual, **changed})


def made(found: AttemptRecord, expect: tuple[Outcome, ...] = (Outcome.PASSED,)) -> Episode:
    return episode(TRIAL, found, expect=expect, began=99.0, trace=Trace())


def test_the_phases_add_up_to_the_whole():
    found = made(record())
    assert found.phases_s == pytest.approx(
        {"start": 0.2, "setup": 0.05, "work": 0.4, "verify": 0.2, "teardown": 0.15}
    )
    assert sum(found.phases_s.values()) == pytest.approx(found.wall_clock_s)
    assert found.started_s == 1.0
    assert found.task_ref == "perf/a@0123456789ab"


def test_a_clock_that_was_set_back_gives_no_negative_time():
    found = made(record(ended_at=99.0))
    assert found.wall_clock_s == 0.0
    assert min(found.phases_s.values()) >= 0


def test_waiting_counts_only_while_a_worker_was_free(make_episode: MakeEpisode):
    episodes = [
        make_episode(0, started_s=0.0, wall_clock_s=1.0),
        make_episode(1, started_s=0.2, wall_clock_s=0.5),
        make_episode(2, started_s=0.8, wall_clock_s=1.0),
        make_episode(3, started_s=1.0, wall_clock_s=1.0),
    ]
    waited = [each.phases_s["queue"] for each in with_queue(reversed(episodes), workers=2)]
    assert waited == pytest.approx([0.0, 0.2, 0.1, 0.0])


def test_a_row_has_every_field_of_the_contract(make_episode: MakeEpisode):
    row = make_episode().row()
    wanted = [
        "episode",
        "episode_index",
        "agent",
        "task_ref",
        "seed",
        "success",
        "wall_clock_s",
        "error",
        "artifact_bytes",
        "llm_trace_entries",
        "prompt_bytes",
        "completion_bytes",
        "tokens_used",
    ]
    assert set(wanted) <= row.keys()
    assert {f"{phase}_s" for phase in PHASES} <= row.keys()


def test_a_failure_has_a_reason_and_an_expected_one_has_none():
    failure = Failure(phase="agent", type="TimeoutError", message="too slow")
    late = record(outcome=Outcome.AGENT_TIMEOUT, failure=failure)
    assert made(late).reason == "agent_timeout: TimeoutError"
    assert made(late).error == "agent: TimeoutError: too slow"
    assert made(late, (Outcome.AGENT_TIMEOUT,)).reason is None
    assert made(record(outcome=Outcome.FAILED, reward=0.0)).reason == "failed"
    assert made(record()).error is None


def trajectory(tmp_path: Path, at: str = "2026-01-01T00:00:00+00:00", said: str = "hello") -> Path:
    file = tmp_path / "trajectory.json"
    steps = [
        {"step_id": 1, "timestamp": at, "source": "user", "message": "do it"},
        {
            "step_id": 2,
            "timestamp": at,
            "source": "agent",
            "message": said,
            "tool_calls": [{"arguments": {"command": "ls"}}],
            "observation": {"results": [{"content": "ä.txt"}]},
        },
    ]
    file.write_text(json.dumps({"session_id": at, "steps": steps}))
    return file


def test_a_trace_counts_what_was_read_and_written(tmp_path: Path):
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    trace = read_trace(trajectory(tmp_path), record(usage=usage))
    assert (trace.entries, trace.steps, trace.tool_calls, trace.tokens_used) == (2, 1, 1, 7)
    assert trace.prompt_bytes == len("do it") + len("ä.txt".encode())
    assert trace.completion_bytes == len("hello") + len('{"command": "ls"}')


def test_the_clock_is_not_in_the_digest_and_everything_else_is(tmp_path: Path):
    first = read_trace(trajectory(tmp_path), record()).digest
    assert read_trace(trajectory(tmp_path, at="2027-05-05T05:05:05+00:00"), record()).digest == first
    assert read_trace(trajectory(tmp_path, said="bye"), record()).digest != first
    assert read_trace(trajectory(tmp_path), record(outcome=Outcome.FAILED, reward=0.0)).digest != first


@pytest.mark.parametrize("content", [None, "{", "[]", '{"steps": 5}', "{}"])
def test_a_trajectory_that_cannot_be_read_is_an_empty_trace(tmp_path: Path, content: str | None):
    file = tmp_path / "trajectory.json"
    if content is not None:
        file.write_text(content)
    trace = read_trace(file, record())
    assert trace.entries == 0
    assert len(trace.digest) == 64
