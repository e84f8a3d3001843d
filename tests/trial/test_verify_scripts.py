"""A rubric's script without a first line that says so runs by its extension."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from proctor.cli.main import main
from proctor.runfolder.read import RunData
from proctor.trial.verify import interpreter_of


@pytest.mark.parametrize(
    ("name", "text", "runs_it"),
    [
        ("a.py", "print(1)\n", "python3"),
        ("a.py", "#!/usr/bin/env python3\n", ""),
        ("a.sh", "true\n", "/bin/sh"),
        ("a.JS", "1\n", "node"),
        ("a", "true\n", ""),
        ("a.py", "\x7fELF", ""),
    ],
)
def test_the_extension_decides_where_the_file_does_not(tmp_path: Path, name, text, runs_it):
    (tmp_path / name).write_text(text)
    assert interpreter_of(tmp_path / name) == runs_it


@pytest.mark.needs("bubblewrap")
def test_a_python_script_without_a_first_line_judges(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, script in (("good", "import sys\nsys.exit(0)\n"), ("bad", "import sys\nsys.exit(1)\n")):
        folder = tmp_path / "suite" / name
        (folder / "repo").mkdir(parents=True)
        (folder / "tests").mkdir()
        (folder / "tests/judge.py").write_text(script)
        meta = {
            "instructions": "x",
            "repo": {"path": "repo", "end_commit_sha": "abc"},
            "test_scripts": ["judge.py"],
        }
        (folder / "tb_meta.json").write_text(json.dumps(meta))
    spec = {"tasks": [{"path": "suite", "agent": "nop"}], "sandbox": {"host_root": True}}
    Path("s.json").write_text(json.dumps(spec))
    assert main(["run", "s.json"]) == 0
    folder = max(Path(os.environ["PROCTOR_ROLLOUTS_DIR"]).rglob("manifest.json")).parent
    data = RunData.from_folder(folder)
    assert {t.planned.subject: str(t.outcome) for t in data.trials} == {"good": "passed", "bad": "failed"}
    info = next(folder.rglob("repo_info.json")).read_text()
    assert json.loads(info)["end_commit_sha"] == "abc"
