"""Whole runs of the harness on pretended sandboxes, and one on real ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from proctor.engine.base import Listener
from proctor.errors import Exit, SpecError, UsageError
from proctor.model.plan import PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.trial import RunStatus
from proctor.runs.perf.run import PerfResult, Quiet
from proctor.settings import Settings
from proctor.store.open import open_store

REPEATS = 20 if os.environ.get("PROCTOR_SOAK") else 6

Run = Callable[..., PerfResult]
Rows = Callable[[PerfResult], list[dict[str, Any]]]
Document = Callable[[PerfResult, str], dict[str, Any]]


def test_the_default_scenario_passes_its_gate_and_its_own_checks(run: Run, document: Document):
    result = run(episodes=12, workers=4, compress=True)
    assert result.exit_code is Exit.OK
    assert result.problems == ()
    assert result.summary["failure_count"] == 0
    groups = document(result, "metrics")["groups"]
    assert [group["run_count"] for group in groups] == [2] * 6
    assert result.gate is not None
    assert len(result.gate.results) == 5


def test_every_file_carries_one_stamp_and_the_bundle_is_listed(run: Run, document: Document):
    result = run(episodes=2, compress=True)
    names = {path.name for path in result.files}
    stamps = {name.rpartition("-")[2].partition(".")[0] for name in names}
    assert len(stamps) == 1
    stamp = stamps.pop()
    wanted = {f"perf-{kind}-{stamp}.json" for kind in ("manifest", "summary", "metrics", "series")}
    charts = {
        f"perf-chart-{name}-{stamp}.{suffix}"
        for name in ("latency", "overhead", "system", "groups")
        for suffix in ("svg", "png")
    }
    bundle = f"perf-artifacts-{stamp}.zip"
    assert names == wanted | charts | {bundle}
    listed = {entry["name"] for entry in document(result, "manifest")["artifact_set"]}
    assert listed == names - {f"perf-manifest-{stamp}.json"}
    with zipfile.ZipFile(result.files[0].parent / bundle) as archive:
        assert set(archive.namelist()) == names - {bundle}


def test_a_trace_that_differs_for_the_same_seed_lowers_the_determinism_rate(run: Run, document: Document):
    names = ["Dice", "Seeded", "Good"]
    result = run(*(f"rough_agents:{name}" for name in names), episodes=12)
    rates = {group["agent"]: group["determinism_rate"] for group in document(result, "metrics")["groups"]}
    assert rates == {"rough_agents:Dice": 0.5, "rough_agents:Seeded": 1.0, "rough_agents:Good": 1.0}


def test_without_a_seed_that_came_twice_nothing_is_said_of_determinism(run: Run, document: Document):
    result = run("oracle", episodes=1)
    assert document(result, "metrics")["groups"][0]["determinism_rate"] is None


def test_what_an_agent_reads_writes_and_pays_is_counted(run: Run, rows: Rows):
    result = run("rough_agents:Talks")
    row = rows(result)[0]
    assert row["tokens_used"] == 42
    assert row["llm_trace_entries"] == 3
    assert row["completion_bytes"] == len('work{"command": "echo work"}thinking')
    assert row["prompt_bytes"] > 50
    assert result.summary["telemetry_verbosity"]["tokens_used_total"] == 42


def test_many_runs_in_one_folder_leave_as_many_sets_of_the_same_size(run: Run, tmp_path: Path):
    results = [run("oracle", "nop", episodes=2, strict_spec=True) for _ in range(REPEATS)]
    assert len({path.name for result in results for path in result.files}) == REPEATS * 12
    assert [result.problems for result in results] == [()] * REPEATS
    counts = {result.summary["run_artifacts"]["file_count"] for result in results}
    assert len(counts) == 1
    sizes = [result.summary["run_artifacts"]["total_bytes"] for result in results]
    assert max(sizes) - min(sizes) < 0.02 * min(sizes)
    assert not list((tmp_path / "perf").glob(".perf-*"))


def test_a_baseline_makes_its_failure_reasons_known(run: Run, tmp_path: Path):
    gate = tmp_path / "gate.yaml"
    gate.write_text("- no new failure reasons\n- p95_wall_clock_s <= 15\n".replace("p95", "summary.p95"))
    first = run("rough_agents:Crash", "oracle")
    summary = next(path for path in first.files if path.name.startswith("perf-summary-"))
    known = run("rough_agents:Crash", "oracle", gate=gate, baseline=summary)
    assert known.exit_code is Exit.OK
    new = run("rough_agents:GivesUp", "oracle", gate=gate, baseline=summary)
    assert new.exit_code is Exit.WORSE


def test_a_rule_file_may_name_its_baseline(run: Run, tmp_path: Path):
    first = run("rough_agents:Crash", "oracle")
    summary = next(path for path in first.files if path.name.startswith("perf-summary-"))
    gate = tmp_path / "perf" / "gate.yaml"
    gate.write_text(f"baseline: {summary.name}\nrules: [no new failure reasons]\n")
    assert run("rough_agents:Crash", "oracle", gate=gate).exit_code is Exit.OK


def test_a_wrong_rule_or_baseline_stops_before_the_first_episode(
    run: Run, tmp_path: Path, settings: Settings
):
    gate = tmp_path / "gate.yaml"
    gate.write_text("- failure_count = 0\n")
    with pytest.raises(SpecError, match="equality is '=='"):
        run("oracle", gate=gate)
    with pytest.raises(UsageError, match="cannot be read"):
        run("oracle", baseline=tmp_path / "nothing.json")
    wrong = tmp_path / "wrong.json"
    for text in ("[]", "{}"):
        wrong.write_text(text)
        with pytest.raises(UsageError, match=r"wrong\.json"):
            run("oracle", baseline=wrong)
    assert not (tmp_path / "rollouts").exists()


def test_the_artifacts_name_neither_the_machine_nor_its_folders(run: Run, tmp_path: Path, document: Document):
    result = run(episodes=2)
    manifest = document(result, "manifest")
    assert "hostname" not in manifest["environment"]
    assert "executable" not in manifest["environment"]["python"]
    assert all(str(tmp_path) not in str(entry) for entry in manifest["scenario"])


def test_the_run_is_in_the_store_like_any_other(run: Run, settings: Settings):
    result = run("oracle", "nop")
    with open_store(settings.store_url) as store:
        info = store.run(result.summary["run_id"])
        assert info.status is RunStatus.DONE
        assert info.counts == {"passed": 1, "failed": 1}


@pytest.mark.needs("bubblewrap")
def test_real_sandboxes_give_deterministic_traces(run: Run, document: Document):
    result = run(episodes=12, workers=3, sandbox="bubblewrap", timeout_s=60.0)
    assert result.exit_code is Exit.OK, result.summary
    assert result.problems == ()
    rates = [group["determinism_rate"] for group in document(result, "metrics")["groups"]]
    assert rates == [None] * 6
    assert result.summary["overhead_s"]["work"] > 0
    assert result.summary["growth"]["artifact_bytes"] == "linear"


def test_an_interrupted_run_writes_what_had_ended(run: Run, tmp_path: Path, settings: Settings):
    """The signal goes to the parent, which passes it on; the child ends what runs and saves."""
    mark = tmp_path / "begun"
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from proctor.runs.perf.run import PerfRequest, run_perf, Quiet
from proctor.runs.process_resources import Resources
from proctor.settings import Settings
from contextlib import contextmanager

class Ear(Quiet):
    def started(self, trial, lease):
        if trial.agent.endswith("Hang"):
            Path({str(mark)!r}).touch()

@contextmanager
def listen():
    yield Ear()

result = run_perf(
    PerfRequest(episodes=4, workers=1, timeout_s=60, sandbox="fake", strict_spec=True,
                output_dir=Path({str(tmp_path / "perf")!r}), scenario=Path({str(tmp_path / "s.yaml")!r})),
    Resources(
        Settings(home=Path({str(tmp_path / ".proctor")!r}), rollouts_dir=Path({str(tmp_path / "rollouts")!r}))
    ),
    listen=listen,
)
print(int(result.exit_code), result.summary["episodes"], len(result.problems))
"""
    from proctor.runs.perf.scenario import DEFAULT

    task = DEFAULT.parent / "word-count"
    (tmp_path / "s.yaml").write_text(
        f"- {{task: {task}, agent: oracle}}\n- {{task: {task}, agent: 'rough_agents:Hang'}}\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    begun = threading.Event()

    def watch() -> None:
        while not mark.exists() and process.poll() is None:
            begun.wait(0.01)
        begun.set()

    threading.Thread(target=watch, daemon=True).start()
    assert begun.wait(60)
    os.kill(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert output.split() == [str(int(Exit.INTERRUPTED)), "1", "0"]


def test_a_cancelled_run_is_not_judged_and_stays_cancelled(run: Run, settings: Settings):
    """As `proctor cancel` does it, from another process, after the first episode has ended."""

    class Cancels(Quiet):
        def ended(self, trial: PlannedTrial, record: AttemptRecord, counts: bool) -> None:
            with open_store(settings.store_url) as store:
                info = store.run("latest")
                if info.status is not RunStatus.CANCELLED:
                    store.set_status(info.id, RunStatus.CANCELLED)
                    store.cancel(info.id)

    @contextmanager
    def listen() -> Iterator[Listener]:
        yield Cancels()

    result = run("oracle", episodes=6, workers=1, listen=listen)
    assert result.status is RunStatus.CANCELLED
    assert result.gate is None
    assert result.exit_code is Exit.INTERRUPTED
    assert result.summary["episodes"] == 1
    with open_store(settings.store_url) as store:
        assert store.run("latest").status is RunStatus.CANCELLED
