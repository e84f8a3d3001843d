"""Parts of Harbor's format that only a real sandbox can show, from the folder to the reward."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from proctor.cli.main import main
from proctor.model.record import AttemptRecord
from proctor.runfolder.read import RunData
from proctor.tasks.archive import pack

pytestmark = pytest.mark.needs("bubblewrap")
TOML = """schema_version = "1.4"
{above}
[environment]
workdir = "/place"
cpus = 1
memory_mb = 256
network_mode = "no-network"
{below}
"""
STEPS = """
[[steps]]
name = "first"
min_reward = 1.0
[[steps]]
name = "second"
artifacts = ["second.txt"]
[steps.verifier.env]
WANTED = "second"
[steps.healthcheck]
command = "test -f /place/prepared"
interval_sec = 0.1
"""
SHARED = """#!/bin/bash
. /tests/judge.sh
judge "${WANTED:-first}"
"""
JUDGE = """judge() {
  echo 0 > /logs/verifier/reward.txt
  grep -q "$1" "/place/$1.txt" && [ -z "$2" -o -f /tests/own ] && echo 1 > /logs/verifier/reward.txt
}
"""


def make(folder: Path, above: str = "", below: str = "", **files: str) -> Path:
    contents = {
        "task.toml": TOML.format(above=above, below=below),
        "instruction.md": "Write the file that is asked for.\n",
        "environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /place\n",
        **files,
    }
    for name, text in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def run(folder: Path, task: Path | str, **entry: object) -> tuple[int, AttemptRecord]:
    spec = {
        "name": "format",
        "sandbox": {"host_root": True},
        "tasks": [{"path": str(task), "agent": "oracle", "rollouts": 1, **entry}],
    }
    (folder / "spec.json").write_text(json.dumps(spec))
    code = main(["run", str(folder / "spec.json")])
    latest = max(Path(os.environ["PROCTOR_ROLLOUTS_DIR"]).rglob("manifest.json")).parent
    (trial,) = RunData.from_folder(latest).trials
    assert trial.counted is not None
    return code, trial.counted


def test_steps_share_tests_and_have_files_a_setup_a_health_check_and_artifacts(tmp_path):
    steps = {
        "tests/test.sh": SHARED,
        "tests/judge.sh": JUDGE,
        "steps/first/instruction.md": "Write first.",
        "steps/first/solution/solve.sh": '[ -z "$(ls /tests 2> /dev/null)" ] && echo first > first.txt\n',
        "steps/second/instruction.md": "Write second.",
        "steps/second/solution/solve.sh": '[ -z "$(ls /tests)" ] && cat given.txt > second.txt\n',
        "steps/second/tests/test.sh": '#!/bin/bash\n. /tests/judge.sh\njudge "$WANTED" own\n',
        "steps/second/tests/own": "",
        "steps/second/workdir/given.txt": "second\n",
        "steps/second/workdir/setup.sh": "touch prepared\n",
    }  # fmt: skip
    code, record = run(tmp_path, make(tmp_path / "steps", "", STEPS, **steps))
    assert (code, record.reward, record.metrics["steps"]) == (0, 1.0, {"first": 1.0, "second": 1.0})
    assert "artifacts/steps/second/second.txt" in {each.name for each in record.artifacts}


def test_a_separate_verifier_sees_the_artifacts_without_what_is_excluded(tmp_path):
    above = 'artifacts = ["one.txt", { source = "/place/tree", exclude = ["*.big"] }]'
    below = (
        '[verifier]\nenvironment_mode = "separate"\n'
        '[[verifier.collect]]\ncommand = "echo 5 > /place/tree/by-hook"\n'
    )
    test = """#!/bin/bash
cd /place && [ "$(find . -type f | sort | tr '\\n' ' ')" = "./one.txt ./tree/by-hook ./tree/in/a " ] &&
  [ "$(cat /logs/artifacts/note)" = published ] && echo 1 > /logs/verifier/reward.txt && exit
find / -xdev -newer /tests/test.sh -type f 2>/dev/null | head; echo 0 > /logs/verifier/reward.txt
"""
    solve = "mkdir -p tree/in; echo 1 > one.txt; echo 2 > tree/in/a; echo 3 > tree/x.big; echo 4 > cheat.py\n"
    solve += "echo published > /logs/artifacts/note\n"
    files = {"tests/test.sh": test, "solution/solve.sh": solve}
    code, record = run(tmp_path, make(tmp_path / "separate", above, below, **files))
    assert (code, record.reward, record.failure) == (0, 1.0, None)
    kept = {each.name for each in record.artifacts if each.name.startswith("artifacts/files")}
    assert kept == {
        "artifacts/files/one.txt",
        "artifacts/files/place/tree/by-hook",
        "artifacts/files/place/tree/in/a",
        "artifacts/files/logs/artifacts/note",
    }


def test_a_zip_is_run_under_the_name_of_its_task(tmp_path):
    files = {"tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n", "solution/solve.sh": "true\n"}
    pack(make(tmp_path / "folder", **files), tmp_path / "my-sums.zip")
    code, _ = run(tmp_path, tmp_path / "my-sums.zip")
    assert code == 0
    latest = max(Path(os.environ["PROCTOR_ROLLOUTS_DIR"]).rglob("manifest.json")).parent
    assert [trial.planned.subject for trial in RunData.from_folder(latest).trials] == ["my-sums"]
