"""Side by side with Harbor: the same task and agent earn the same, and each reads what the other writes."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.made_rollouts import Study

from proctor.cli.main import main
from proctor.errors import Exit
from proctor.model.outcome import Outcome
from proctor.runfolder.harbor.write import write_job
from proctor.settings import load_settings
from proctor.store.blobs import open_blobs
from proctor.store.open import open_store

DRIVER = Path(__file__).with_name("harbor_job.py")
ENV = {"HARBOR_TELEMETRY": "0", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
AGENTS = ("oracle", "nop")
PYENV = Path.home() / ".pyenv/versions"
"""Tests have a home of their own, so it is looked up before they run."""


@functools.cache
def harbor_python() -> str:
    """An interpreter that has Harbor: `HARBOR_PYTHON`, or the newest of this machine's that can import it."""
    found = [os.environ.get("HARBOR_PYTHON", "")]
    found += [shutil.which(f"python3.{minor}") or "" for minor in (14, 13, 12)]
    found += sorted(map(str, PYENV.glob("3.1[2-9]*/bin/python")), reverse=True)
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('harbor') is None)"
    for each in filter(None, found):
        if subprocess.run([each, "-c", look], capture_output=True, check=False).returncode == 0:
            return each
    return ""


@pytest.fixture
def harbor():
    python = harbor_python()
    if not python:
        pytest.skip("no Python 3.12 or later with Harbor here; HARBOR_PYTHON names one")

    def call(*arguments: object) -> None:
        done = subprocess.run(
            [python, str(DRIVER), *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, **ENV},
        )
        assert done.returncode == 0, done.stderr[-3000:]

    return call


@pytest.fixture
def task(tmp_path):
    """One that a solution solves, with two rewards and a file that the agent leaves."""
    folder = tmp_path / "tasks" / "hello"
    files = {
        "task.toml": 'schema_version = "1.1"\n[task]\nname = "made/hello"\n',
        "instruction.md": "Write hello to /app/hello.txt.\n",
        "environment/Dockerfile": "FROM debian\nWORKDIR /app\n",
        "solution/solve.sh": "#!/bin/sh\necho hello > /app/hello.txt\n",
        "tests/test.sh": (
            "#!/bin/sh\necho testing\n"
            "if [ -f /app/hello.txt ]; then a=1; else a=0; fi\n"
            'echo "{\\"reward\\": $a, \\"style\\": 0.5}" > /logs/verifier/reward.json\n'
        ),
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def earned(ref: str) -> dict[tuple[str, str], tuple[str, float, dict[str, float]]]:
    with open_store(load_settings().store_url) as store:
        return {
            (row.trial.subject, row.trial.agent): (
                row.record.outcome.value,
                row.record.reward,
                row.record.metrics["rewards"],
            )
            for row in store.attempts(store.run(ref).id)
        }


def test_the_same_task_and_agent_earn_the_same_under_harbor_and_here(tmp_path, harbor, task, capsys):
    harbor("run", task, tmp_path / "jobs" / "theirs", *AGENTS)
    assert main(["import", str(tmp_path / "jobs" / "theirs")]) == Exit.OK
    agents = [part for agent in AGENTS for part in ("-a", agent)]
    assert main(["run", "-t", str(task), *agents, "--host-root", "--name", "ours"]) == Exit.OK
    assert earned("ours") == earned("theirs") == {
        ("made/hello", "oracle"): ("passed", 1.0, {"reward": 1.0, "style": 0.5}),
        ("made/hello", "nop"): ("failed", 0.0, {"reward": 0.0, "style": 0.5}),
    }  # fmt: skip
    capsys.readouterr()
    main(["compare", "ours", "theirs", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["only_a"], found["only_b"]) == ([], [])


def test_harbor_reads_the_jobs_that_are_written_for_it(tmp_path, harbor, task):
    agents = [part for agent in AGENTS for part in ("-a", agent)]
    assert main(["run", "-t", str(task), *agents, "-n", "2", "--host-root", "--name", "ours"]) == Exit.OK
    assert main(["export", "ours", str(tmp_path / "jobs" / "real"), "--format", "harbor"]) == Exit.OK
    harbor("check", tmp_path / "jobs" / "real")


def test_harbor_reads_every_outcome_and_calculates_the_same_statistics(tmp_path, harbor):
    study = Study().cell("org/a", [*Outcome, 0.5, None], agent="coder", model="openai/gpt")
    data = study.cell("org/a", [1.0, 0.0, 0.0, 1.0, 1.0]).cell("org/b", [1.0, 1.0, 0.0, 0.0, 0.0]).data()
    write_job(data, open_blobs(tmp_path / "blobs"), tmp_path / "jobs" / "made")
    harbor("check", tmp_path / "jobs" / "made")
