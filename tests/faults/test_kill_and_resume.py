"""A run that is killed at any moment loses nothing and repeats nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proctor.store.open import open_store

pytestmark = pytest.mark.fault
ROUNDS = 60 if os.environ.get("PROCTOR_SOAK") else 6
POINTS = 200
EXPERIMENT = """
from proctor import Experiment, register_experiment

@register_experiment("counting")
class Counting(Experiment):
    def __init__(self, n: int = 0) -> None:
        self.n = n

    def execute_once(self, context):
        return {"n": self.n}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "counting.py").write_text(EXPERIMENT)
    spec = {
        "experiment": "counting",
        "sources": ["counting.py"],
        "sweep": {"n": list(range(POINTS))},
        "parallel": 2,
    }
    (folder / "counting.json").write_text(json.dumps(spec))
    return folder


def proctor(*arguments: str, cwd: Path, home: Path) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PROCTOR_HOME": str(home / ".proctor"),
        "PROCTOR_OUTPUT_DIR": str(home / "results"),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "proctor.cli.main", *arguments],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def attempts_so_far(home: Path) -> int:
    return sum(len(file.read_bytes().splitlines()) for file in (home / "results").rglob("series.jsonl"))


def kill_at(process: subprocess.Popen[str], home: Path, count: int) -> None:
    """Kill the run once it has written about `count` results, wherever it is then."""
    deadline = time.monotonic() + 60
    while process.poll() is None and attempts_so_far(home) < count and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_killed_sweep_resumes_to_every_result_once(number: int, project: Path, tmp_path: Path):
    dice = random.Random(number)
    process = proctor("run", "counting.json", cwd=project, home=tmp_path)
    kill_at(process, tmp_path, dice.randrange(POINTS))
    resumed = proctor("resume", "latest", "--json", cwd=project, home=tmp_path)
    output = resumed.communicate(timeout=120)[0]
    assert resumed.returncode == 0, output
    with open_store(str(tmp_path / ".proctor/proctor.db")) as store:
        run = store.run("latest")
        counted = [row for row in store.attempts(run.id) if row.counts]
    assert len(counted) == POINTS
    assert len({row.trial.key for row in counted}) == POINTS
    assert sorted(row.record.metrics["n"]["p50"] for row in counted) == list(range(POINTS))
    rows = [json.loads(line) for line in (Path(run.folder) / "series.jsonl").read_text().splitlines()]
    assert sum(row["counts"] for row in rows) == POINTS
    assert len({(row["key"], row["number"]) for row in rows}) == len(rows)
