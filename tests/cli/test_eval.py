"""Agents on tasks in real sandboxes, through the commands: prove, grade again, go on, cancel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proctor.cli.main import main
from proctor.model.trial import RunStatus
from proctor.settings import load_settings
from proctor.store.open import open_store

pytestmark = pytest.mark.needs("bubblewrap")


def run_command(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "proctor.cli.main", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )


def summarized(capsys: pytest.CaptureFixture[str], name: str) -> dict[str, dict]:
    capsys.readouterr()
    assert main(["summarize", name, "--json"]) == 0
    return {arm["agent"]: arm for arm in json.loads(capsys.readouterr().out)["arms"]}


@pytest.fixture
def sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new task, in a folder where nothing else is."""
    monkeypatch.chdir(tmp_path)
    assert main(["new", "task", "sums"]) == 0
    return tmp_path / "tasks/sums"


def test_a_new_task_is_passed_by_the_oracle_and_not_by_nop_and_can_be_graded_again(sums, capsys):
    assert main(["run", "specs/sums.toml"]) == 0
    arms = summarized(capsys, "sums")
    assert (arms["oracle"]["passed"], arms["nop"]["passed"]) == (2, 0)
    assert main(["tasks", "check", "tasks"]) == 0
    assert capsys.readouterr().out == "1 task: 0 with errors, 0 with warnings, 1 without\n"
    with open_store(load_settings().store_url) as store:
        first = store.run("sums")
        before = [row.record for row in store.attempts(first.id)]

    test = sums / "tests/test.sh"
    test.write_text(test.read_text().replace("echo 1 >", "echo 0.5 >"))
    assert main(["eval", "sums", "--latest", "-v"]) == 0
    arms = summarized(capsys, "sums.eval")
    assert arms["oracle"]["mean_reward"]["errors_excluded"]["value"] == 0.5
    assert arms["nop"]["mean_reward"]["errors_excluded"]["value"] == 0.0

    with open_store(load_settings().store_url) as store:
        again = store.run("sums.eval")
        assert f"grades the workspaces of run {first.id} again" in again.notes
        assert "eval" in again.tags
        assert [row.record for row in store.attempts(first.id)] == before
    assert main(["eval", "sums.eval", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["arms"][0]["scored"] == 2
    assert main(["eval", "sums", "--rollout", "1999"]) == 2


def test_the_diff_is_the_agents_and_not_the_verifiers(sums):
    test = sums / "tests/test.sh"
    test.write_text(test.read_text() + "echo later > /app/left-by-the-tests\n")
    assert main(["run", "specs/sums.toml", "--set", "tasks.0.rollouts=1"]) == 0
    with open_store(load_settings().store_url) as store:
        folder = Path(store.run("sums").folder)
    patch = (folder / "trials/sums/0/artifacts/diff.patch").read_text()
    assert "+food,-13205" in patch
    assert "left-by-the-tests" not in patch
    assert json.loads((folder / "trials/sums/0/artifacts/repo_info.json").read_text())["added"] == 1


def test_a_cancelled_run_ends_soon_and_says_so(sums, monkeypatch, capsys):
    monkeypatch.setenv("PROCTOR_LEASE_S", "0.9")
    spec = Path("specs/sleep.toml")
    spec.write_text(
        'name = "sleep"\nsandbox = { host_root = true }\n[[tasks]]\npath = "../tasks/sums"\n'
        'agent = "command"\nrollouts = 3\nagent_options = { command = "sleep 600" }\n'
    )
    running = run_command("run", str(spec))
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not _begun():
            time.sleep(0.05)
        assert main(["cancel", "sleep"]) == 0
        out, err = running.communicate(timeout=60)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 130, err
    assert "was cancelled" in err
    with open_store(load_settings().store_url) as store:
        info = store.run("sleep")
    assert info.status is RunStatus.CANCELLED
    assert info.counts == {"cancelled": 3}
    assert "sleep was cancelled before any of its 3 trials had a result" in out
    assert main(["resume", "sleep"]) == 2
    assert "was cancelled" in capsys.readouterr().err


def _begun() -> bool:
    with open_store(load_settings().store_url, create=False) as store:
        return any(run.name == "sleep" and store.state_counts(run.id)["running"] for run in store.runs())


def test_a_run_that_was_killed_goes_on_where_it_was(sums, capsys):
    spec = Path("specs/slow.toml")
    spec.write_text(
        'name = "slow"\nparallel = 1\nsandbox = { host_root = true }\n[[tasks]]\npath = "../tasks/sums"\n'
        'agent = "oracle"\nrollouts = 12\n'
    )
    running = run_command("run", str(spec))
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not _done("slow"):
            time.sleep(0.02)
    finally:
        running.kill()
        running.communicate()
    done = _done("slow")
    assert done >= 1
    assert main(["resume", "slow"]) == 0
    assert summarized(capsys, "slow")["oracle"]["passed"] == 12
    with open_store(load_settings().store_url) as store:
        run = store.run("slow")
        assert len((Path(run.folder) / "runs.txt").read_text().splitlines()) == 12
        assert len(json.loads((Path(run.folder) / "manifest.json").read_text())["results"]) == 12


def _done(name: str) -> int:
    with open_store(load_settings().store_url, create=False) as store:
        return next((run.done for run in store.runs() if run.name == name), 0)


def test_experiments_cannot_be_graded_again(store_rollouts, capsys):
    store_rollouts({("a", "oracle"): [1.0]}, kind="experiment")
    assert main(["eval", "study"]) == 2
    assert "only runs of agents on tasks" in capsys.readouterr().err
