"""Jobs of Harbor on the command line: out, in, and what is refused."""

from __future__ import annotations

import json

import pytest

from proctor.cli.main import main
from proctor.errors import Exit
from proctor.settings import load_settings

ENDS = {("made/a", "coder"): [1.0, 0.0, "provider_error"], ("made/b", "coder"): [1.0, 1.0, 0.5]}


@pytest.fixture
def job(tmp_path):
    return str(tmp_path / "jobs" / "nightly")


@pytest.fixture
def imported(store_rollouts, capsys, job):
    """The id of a run that went out as a job and came back in."""
    store_rollouts(ENDS)
    assert main(["export", "study", job, "--format", "harbor", "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["trials"] == 6
    assert main(["import", job, "--json"]) == Exit.OK
    (done,) = json.loads(capsys.readouterr().out)
    assert done["added"]
    return done["run_id"]


def test_an_imported_job_is_summarized_and_compared_like_any_run(imported, capsys, job):
    assert main(["summarize", imported, "--json"]) == Exit.OK
    found = json.loads(capsys.readouterr().out)
    counts = found["run"]["counts"]
    assert {name: count for name, count in counts.items() if count} == {
        "failed": 1,
        "partial": 1,
        "passed": 3,
        "provider_error": 1,
    }
    assert main(["compare", "study", imported, "--json"]) in {Exit.OK, Exit.INCONCLUSIVE}
    both = json.loads(capsys.readouterr().out)
    assert (both["only_a"], both["only_b"]) == ([], [])
    assert main(["import", job]) == Exit.OK
    assert "was already in the store" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["resume", "eval"])
def test_an_imported_run_cannot_be_run_here(imported, capsys, command):
    assert main([command, imported]) == Exit.USAGE
    assert "was imported from harbor" in capsys.readouterr().err


def test_a_trajectory_is_shown_step_by_step(imported, capsys):
    assert main(["logs", imported, "0", "--log", "trajectory"]) == Exit.USAGE
    assert "left no trajectory" in capsys.readouterr().err
    assert main(["logs", imported, "--json"]) == Exit.OK
    capsys.readouterr()
    (folder,) = (load_settings().rollouts_dir / "nightly").iterdir()
    step = {
        "source": "agent",
        "message": "hm",
        "tool_calls": [{"function_name": "x", "arguments": {"command": "ls"}}],
    }
    place = folder / "trials/made__a/0"
    place.mkdir(parents=True, exist_ok=True)
    (place / "trajectory.json").write_text(json.dumps({"schema_version": "ATIF-v1.7", "steps": [step]}))
    assert main(["logs", imported, "0", "--log", "trajectory"]) == Exit.OK
    assert capsys.readouterr().out == "── 1 agent\nhm\n$ ls\n\n"
    assert main(["logs", imported, "0", "--log", "trajectory", "--tail", "2"]) == Exit.OK
    assert capsys.readouterr().out == "$ ls\n\n"
    assert main(["logs", imported, "0", "--log", "trajectory", "--follow"]) == Exit.USAGE
