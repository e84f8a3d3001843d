"""The documents: fields of the contract, figures that can be checked by hand, growth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from proctor.model.outcome import Outcome
from proctor.runfolder.perf import documents
from proctor.runfolder.perf.documents import PerfRun, determinism_rate
from proctor.runfolder.perf.episode import Episode, Trace
from proctor.runfolder.perf.footprint import footprint
from proctor.verdicts.perf.growth import artifact_bytes, latency, memory

MakeEpisode = Callable[..., Episode]
MakeRun = Callable[..., PerfRun]


def test_the_summary_has_every_field_of_the_contract(make_run: MakeRun):
    found = documents.summary(make_run())
    wanted = [
        "summary",
        "episodes",
        "success_count",
        "failure_count",
        "max_wall_clock_s",
        "failure_reasons",
        "run_artifacts",
        "system_samples",
        "telemetry_verbosity",
        "throughput_eps",
        "wall_clock_total_s",
        "overhead_s",
    ]
    assert set(wanted) <= found.keys()
    assert list(found["summary"]) == [
        "total", "passed", "failed", "workers", "p50_wall_clock_s", "p95_wall_clock_s",
    ]  # fmt: skip
    assert list(found["overhead_s"]) == ["queue", "start", "setup", "work", "verify", "teardown"]
    assert found["overhead_s"]["work"] == pytest.approx(0.8)
    assert found["overhead_share"] == pytest.approx(0.07 / 0.21, abs=1e-4)
    assert found["wall_clock_total_s"] == pytest.approx(0.9)
    assert found["throughput_eps"] == pytest.approx(8 / 0.9, abs=1e-3)
    assert found["telemetry_verbosity"]["artifact_bytes_total"] == 8000


def test_failures_are_counted_by_reason(make_run: MakeRun, make_episode: MakeEpisode):
    bad = {"success": False, "outcome": Outcome.AGENT_ERROR, "reason": "agent_error: X"}
    found = documents.summary(make_run([make_episode(0), make_episode(1, **bad), make_episode(2, **bad)]))
    assert (found["success_count"], found["failure_count"]) == (1, 2)
    assert found["failure_reasons"] == {"agent_error: X": 2}


def test_the_metrics_keep_tasks_and_agents_apart(make_run: MakeRun, make_episode: MakeEpisode):
    slow = make_episode(1, wall_clock_s=1.0, trace=Trace(steps=9, tool_calls=4, digest="e" * 64))
    run = make_run([make_episode(0), slow, make_episode(2), make_episode(3)])
    groups = documents.metrics(run)["groups"]
    assert [(group["agent"], group["run_count"]) for group in groups] == [("nop", 2), ("oracle", 2)]
    assert groups[1]["steps"] == {"p50": 5.5, "p95": 8.65, "ceiling": 9}
    assert groups[1]["avg_wall_clock_s"] == pytest.approx(0.6)
    assert groups[0]["termination_taxonomy"] == {"passed": 2}


def test_determinism_is_about_seeds_that_came_again(make_episode: MakeEpisode):
    def one(seed: int, digest: str) -> Episode:
        return make_episode(0, seed=seed, trace=Trace(digest=digest))

    assert determinism_rate([one(1, "a"), one(1, "a"), one(2, "b")]) == 1.0
    assert determinism_rate([one(1, "a"), one(1, "a"), one(1, "b"), one(2, "c"), one(2, "c")]) == 0.8
    assert determinism_rate([one(1, "a"), one(2, "a")]) is None


def test_a_run_without_an_episode_has_documents_too(make_run: MakeRun):
    run = make_run([], planned=3)
    assert documents.summary(run)["episodes"] == 0
    assert documents.metrics(run)["groups"] == []
    assert documents.manifest(run, [])["episodes_run"] == 0


def test_late_episodes_that_take_longer_are_seen(make_episode: MakeEpisode):
    slower = [make_episode(at, wall_clock_s=0.2 + 0.01 * at) for at in range(40)]
    assert latency(slower)["verdict"] == "grows"
    alike = [make_episode(at, wall_clock_s=0.1 if at % 2 else 0.5) for at in range(40)]
    assert latency(alike)["verdict"] == "steady"
    assert latency(alike[:4])["verdict"] == "unknown"


def test_artifacts_must_grow_with_the_episodes_and_no_faster(make_episode: MakeEpisode):
    same = [make_episode(at, artifact_bytes=500 + 300 * (at % 2)) for at in range(20)]
    assert artifact_bytes(same, 2) == {"verdict": "linear", "exponent": 1.0, "passes": 10}
    more = [make_episode(at, artifact_bytes=500 * (at + 1)) for at in range(20)]
    assert artifact_bytes(more, 2)["verdict"] == "faster"
    less = [make_episode(at, artifact_bytes=5000 // (at + 1)) for at in range(20)]
    assert artifact_bytes(less, 2)["verdict"] == "slower"
    assert artifact_bytes(same[:2], 2)["verdict"] == "unknown"


def test_memory_is_looked_at_after_each_pass(make_episode: MakeEpisode):
    episodes = [make_episode(at, started_s=float(at), wall_clock_s=0.5) for at in range(40)]

    def samples(grow: int) -> list[dict[str, float]]:
        return [{"at_s": float(at), "harness_rss_bytes": 10**7 + grow * at} for at in range(45)]

    assert memory(episodes, samples(0), pass_length=2)["verdict"] == "steady"
    assert memory(episodes, samples(10**6), pass_length=2)["verdict"] == "grows"
    assert memory(episodes, [], pass_length=2)["verdict"] == "unknown"


def test_the_footprint_is_of_one_folder_and_follows_no_link(tmp_path: Path):
    run, other = tmp_path / "run", tmp_path / "other"
    for path, size in (
        ("run/a.json", 10),
        ("run/trials/t/0/x", 5),
        ("run/trials/t/0/logs/y", 7),
        ("other/z", 99),
    ):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * size)
    (run / "link").symlink_to(other / "z")
    found = footprint(run)
    assert (found.file_count, found.total_bytes) == (3, 22)
    assert found.trials == {"trials/t/0": 12}
    assert found.to_mapping("r")["avg_bytes"] == pytest.approx(22 / 3, abs=1e-3)
    assert footprint(tmp_path / "nowhere").to_mapping("r")["avg_bytes"] == 0.0
