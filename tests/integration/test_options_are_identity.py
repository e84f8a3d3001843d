"""Two agents that differ in their options only are two agents, from the plan to the gate."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from proctor.cli.main import main
from proctor.runfolder.read import RunData
from proctor.settings import load_settings
from proctor.store.open import open_store
from proctor.verdicts.compare.results import from_run
from proctor.verdicts.compare.stored import from_store

pytestmark = pytest.mark.needs("bubblewrap")
TASK = Path(__file__).parents[2] / "tasks" / "config-edit"
ARMS = ("echo one", "echo two")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def entry(command: str, path: str = "path") -> dict[str, object]:
    return {path: str(TASK), "agent": "command", "agent_options": {"command": command}}


def test_a_run_and_its_comparison_keep_them_apart(capsys):
    spec = {"name": "two", "tasks": [entry(each) for each in ARMS], "sandbox": {"host_root": True}}
    Path("s.json").write_text(json.dumps(spec))
    assert main(["plan", "s.json"]) == 0
    out = capsys.readouterr().out
    assert all(f"command (command={each})" in out for each in ARMS)
    assert main(["run", "s.json"]) == 0
    assert all(f"command (command={each})" in capsys.readouterr().out for each in ARMS[:1])
    folder = max(Path(os.environ["PROCTOR_ROLLOUTS_DIR"]).rglob("manifest.json")).parent
    data = RunData.from_folder(folder)
    assert len({trial.planned.agent_version for trial in data.trials}) == 2
    with open_store(load_settings().store_url) as store:
        stored = from_store(store, data.info.id, ())
    names = {f"{data.trials[0].planned.subject} × command (command={each})" for each in ARMS}
    assert {task.name for task in stored.tasks} == names
    assert {task.name for task in from_run(data, ()).tasks} == names
    assert main(["history", "two", "--json"]) == 0
    lines = capsys.readouterr().out
    assert all(f"command (command={each})" in lines for each in ARMS)


def test_two_deterministic_agents_of_the_harness_are_each_deterministic(tmp_path):
    scenario = [{**entry(each, "task"), "expect": ["failed"]} for each in ARMS]
    lines = [{("options" if k == "agent_options" else k): v for k, v in each.items()} for each in scenario]
    Path("scenario.json").write_text(json.dumps(lines))
    asked = ["perf", "--episodes", "8", "--workers", "1", "--host-root", "--scenario", "scenario.json"]
    main([*asked, "--strict-spec", "--output-dir", str(tmp_path / "perf")])
    metrics = json.loads(next((tmp_path / "perf").glob("perf-metrics-*.json")).read_text())
    assert [group["determinism_rate"] for group in metrics["groups"]] == [1.0, 1.0]
    assert [group["agent_options"]["command"] for group in metrics["groups"]] == list(ARMS)
