"""An agent that breaks its sandbox whenever it fails scores no higher than one that just fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.faults.hostile import TESTS, write_task
from tests.faults.test_rough_runs import proctor

from proctor.model.outcome import ENVIRONMENT_BROKEN
from proctor.runfolder.read import RunData
from proctor.verdicts.rollouts.scores import rollouts

pytestmark = [pytest.mark.fault, pytest.mark.needs("bubblewrap")]
TOML = 'schema_version = "1.4"\n[verifier]\ntimeout_sec = 5\n'
PLAIN = "case $instruction in *easy*) echo 42 > answer;; esac"
BREAKING = (
    "case $instruction in *easy*) echo 42 > answer;; "
    "*one*) touch $$(printf '\\377');; *two*) cd /; rm -rf /app; echo x > /app;; "
    "*) rm -rf /tests /logs; rm -f /app; cd /; rm -rf /app; mkfifo /app;; esac"
)


def score(folder: Path, command: str):
    spec = {
        "sandbox": {"host_root": True, "network": "none"},
        "parallel": 2,
        "tasks": [
            {
                "path": f"tasks/{name}",
                "agents": ["command"],
                "rollouts": 2,
                "agent_options": {"command": command},
            }
            for name in ("easy", "one", "two", "three")
        ],
    }
    (folder / "spec.json").write_text(json.dumps(spec))
    process = proctor("run", "spec.json", cwd=folder)
    output = process.communicate(timeout=200)[0]
    found = Path(output.rpartition("report: ")[2].strip()).parent
    return rollouts(RunData.from_folder(found)).arms[0], found, output, process.returncode


def test_breaking_the_sandbox_does_not_raise_the_score(tmp_path):
    for name in ("easy", "one", "two", "three"):
        folder = write_task(tmp_path / "tasks" / name, toml=TOML, tests=TESTS)
        (folder / "instruction.md").write_text(f"This is the {name} task.")
    plain, *_ = score(tmp_path, PLAIN)
    broken, folder, output, code = score(tmp_path, BREAKING)
    assert (plain.passed, plain.scored, plain.errors) == (2, 8, 0)
    assert (broken.passed, broken.scored, broken.errors) == (2, 8, 0), output
    assert code == 0, output
    trials = RunData.from_folder(folder).trials
    assert all(len(trial.attempts) == 1 for trial in trials), "none is tried again"
    broke = [trial.counted for trial in trials if trial.counted.failure]
    assert [record.failure.type for record in broke] == [ENVIRONMENT_BROKEN] * 4
    assert len(list(folder.glob("controls/*/control.json"))) == 2
    for text in (output, (folder / "report.md").read_text(), (folder / "report.html").read_text()):
        assert ENVIRONMENT_BROKEN in text.replace("\\_", "_")
    notes = [each.read_text() for each in folder.glob("trials/two/*/artifacts/notes.md")]
    assert len(notes) == 2
    assert all("control: the same tests work in an untouched sandbox" in each for each in notes)
    receipt = proctor("receipt", str(folder), "receipt.zip", cwd=tmp_path)
    said = receipt.communicate(timeout=60)[0]
    assert receipt.returncode == 0, said
    verified = proctor("verify", "receipt.zip", cwd=tmp_path)
    said = verified.communicate(timeout=60)[0]
    assert verified.returncode == 0, said
