"""Episodes that never happened, and a run made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proctor.model.outcome import Outcome
from proctor.runfolder.perf.documents import PerfRun
from proctor.runfolder.perf.episode import Episode, Trace
from proctor.verdicts.perf.growth import growth_checks

MakeEpisode = Callable[..., Episode]
MakeRun = Callable[..., PerfRun]


def _episode(index: int = 0, **changed: Any) -> Episode:
    usual: dict[str, Any] = {
        "index": index,
        "task_ref": "perf/a@0123456789ab",
        "agent": "oracle" if index % 2 else "nop",
        "model": None,
        "seed": index // 2 % 2,
        "outcome": Outcome.PASSED,
        "success": True,
        "reward": 1.0,
        "started_s": 0.1 * index,
        "wall_clock_s": 0.2,
        "phases_s": {
            "queue": 0.01,
            "start": 0.02,
            "setup": 0.01,
            "work": 0.1,
            "verify": 0.04,
            "teardown": 0.03,
        },
        "artifact_bytes": 1000,
        "trace": Trace(
            entries=3, steps=2, tool_calls=1, prompt_bytes=50, completion_bytes=20, digest="d" * 64
        ),
    }
    return Episode(**{**usual, **changed})


@pytest.fixture
def make_episode() -> MakeEpisode:
    return _episode


@pytest.fixture
def make_run() -> MakeRun:
    def make(episodes: list[Episode] | None = None, **changed: Any) -> PerfRun:
        found = tuple([_episode(at) for at in range(8)] if episodes is None else episodes)
        samples = [
            {
                "at_s": 0.05 * at,
                "cpu_percent": 50.0,
                "memory_used_bytes": 10**9,
                "read_bytes": 0,
                "write_bytes": 4096 * at,
                "harness_cpu_percent": 20.0,
                "harness_rss_bytes": 40_000_000,
            }
            for at in range(20)
        ]
        usual: dict[str, Any] = {
            "run_id": "20260101T000000-abcdef",
            "generated_at": "2026-01-01T00:00:05.123456Z",
            "episodes": found,
            "planned": max(1, len(found)),
            "workers": 4,
            "timeout_s": 180.0,
            "strict_spec": True,
            "compress": False,
            "scenario_name": "default",
            "scenario": (
                {
                    "task": "a",
                    "agent": "oracle",
                    "model": None,
                    "options": {},
                    "seed": None,
                    "weight": 1,
                    "expect": ["passed"],
                },
            ),
            "sandbox": "fake",
            "system": {"interval_s": 0.05, "cpus": 2, "samples": samples},
            "run_artifacts": {
                "root": "data/x",
                "file_count": 10,
                "total_bytes": 9000,
                "avg_bytes": 900.0,
            },
            "versions": {"proctor": "0.1.0"},
            "growth": growth_checks(found, samples, pass_length=2),
        }
        return PerfRun(**{**usual, **changed})

    return make
