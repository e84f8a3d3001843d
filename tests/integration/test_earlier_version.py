"""A store and run folders of an earlier version are read, compared, imported and resumed.

`tests/data/project-0.1.tar.xz` is a project that version 0.1 left in `/mnt`: a sweep measured twice, rollouts
of two agents, and a run that was killed after two of its four points.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

ARCHIVE = Path(__file__).parents[1] / "data" / "project-0.1.tar.xz"
AT = "/mnt"
"""Where the project was: its store names folders there."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path / "project", filter="data")
    can = subprocess.run([*_inside(tmp_path), "true"], capture_output=True, check=False)
    if can.returncode:
        pytest.skip(f"needs a mount namespace: {can.stderr.decode()}")
    return tmp_path / "project"


def _inside(folder: Path) -> list[str]:
    entering = 'mount --bind "$0" "$1" && cd "$1" && shift && exec "$@"'
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", entering, str(folder), AT]


def proctor(project: Path, *arguments: str, codes: tuple[int, ...] = (0,), home: str = "home") -> str:
    environment = {
        **os.environ,
        "PROCTOR_HOME": f"{AT}/{home}",
        "PROCTOR_OUTPUT_DIR": f"{AT}/results",
        "PROCTOR_ROLLOUTS_DIR": f"{AT}/rollouts",
    }
    command = [*_inside(project), sys.executable, "-m", "proctor.cli.main", *arguments]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode in codes, found.stdout + found.stderr
    return found.stdout


def read(project: Path, *arguments: str, **options: Any) -> Any:
    return json.loads(proctor(project, *arguments, "--json", **options))


def run_of(project: Path, name: str, which: int = 0) -> Path:
    return sorted((project / "results" / name).iterdir())[which]


def test_its_runs_are_listed_and_shown(project: Path):
    found = {(run["name"], run["status"], run["done"]) for run in read(project, "ls")}
    assert found == {("sweep", "done", 3), ("rollouts", "done", 4), ("cut", "running", 2)}
    shown = proctor(project, "summarize", "rollouts")
    assert "100 %" in shown
    assert "oracle" in shown


def test_its_runs_are_compared_as_stored_and_as_folders(project: Path):
    folders = [f"{AT}/results/sweep/{run_of(project, 'sweep', which).name}" for which in (0, 1)]
    stored = read(project, "compare", Path(folders[0]).name, Path(folders[1]).name, codes=(0, 1, 3))
    in_folders = read(project, "compare", *folders, codes=(0, 1, 3))
    assert stored["metrics"][0]["points"] == in_folders["metrics"][0]["points"]
    assert len(stored["metrics"][0]["points"]) == 3


def test_its_reports_can_be_written_again(project: Path):
    folder = run_of(project, "sweep")
    (folder / "report.html").unlink()
    proctor(project, "report", folder.name)
    assert "<svg" in (folder / "report.html").read_text()


def test_its_folders_are_imported_into_a_new_store(project: Path):
    for place in ("results/sweep", "rollouts/rollouts"):
        for folder in sorted((project / place).iterdir()):
            proctor(project, "import", f"{AT}/{place}/{folder.name}", home="new")
    assert {run["name"] for run in read(project, "ls", home="new")} == {"sweep", "rollouts"}


def test_a_run_that_it_left_unfinished_is_resumed(project: Path):
    (project / "go-on").touch()
    folder = run_of(project, "cut")
    proctor(project, "resume", folder.name)
    rows = [json.loads(line) for line in (folder / "series.jsonl").read_text().splitlines()]
    assert sorted(row["outcome"] for row in rows) == ["passed"] * 4 + ["worker_lost"]
    assert {run["name"]: run["status"] for run in read(project, "ls")}["cut"] == "done"
