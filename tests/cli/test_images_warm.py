from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.sandbox.image.archives import docker_archive, host_layer

from proctor.cli.main import main
from proctor.settings import load_settings
from proctor.store.open import open_store

pytestmark = pytest.mark.needs("bubblewrap")


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    archive = docker_archive(tmp_path / "shell.tar", [host_layer()], ["shell:1"])
    assert main(["images", "import", str(archive)]) == 0
    for name, step in (("good", "echo 1 > /one"), ("bad", "false")):
        folder = tmp_path / "tasks" / name
        (folder / "environment").mkdir(parents=True)
        (folder / "tests").mkdir()
        (folder / "task.toml").write_text("")
        (folder / "instruction.md").write_text("Do it.\n")
        (folder / "tests" / "test.sh").write_text("true\n")
        (folder / "environment" / "Dockerfile").write_text(f"FROM shell:1\nRUN {step}\n")
    return tmp_path / "tasks"


def test_images_of_tasks_and_specs_are_made_ready(tasks: Path, capsys):
    capsys.readouterr()
    assert main(["images", "warm", str(tasks / "good")]) == 0
    assert "good" in capsys.readouterr().out
    spec = tasks.parent / "spec.yaml"
    spec.write_text(f"name: s\ntasks:\n  - path: {tasks / 'good'}\n    agent: oracle\n")
    assert main(["images", "warm", str(spec), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["images"]
    assert (row["task"], row["error"], row["layers"] >= 2) == ("good", "", True)


def test_an_image_that_cannot_be_built_does_not_stop_the_others(tasks: Path, capsys):
    assert main(["images", "warm", str(tasks), "--json"]) == 4
    shown = capsys.readouterr()
    rows = {row["task"]: row for row in json.loads(shown.out[shown.out.index("{") :])["images"]}
    assert rows["good"]["error"] == ""
    assert "Dockerfile:2" in rows["bad"]["error"]
    assert "RUN false" in shown.err


def test_what_is_no_spec_no_task_and_no_run_is_refused(capsys):
    open_store(load_settings().store_url).close()
    assert main(["images", "warm", "nothing-like-that"]) == 2
    assert "nothing-like-that" in capsys.readouterr().err
