"""RunResults in the layout of older tools, written by `proctor export` and read by `proctor compare`."""

from __future__ import annotations

import json
from pathlib import Path

import proctor
from proctor.cli.main import main

SPEC = {
    "name": "older",
    "experiment": "statement",
    "params": {"statement": ["x = 1", "x = 2"]},
    "iterations": {"warmup": 2, "measured": 6},
    "instrumentation": ["timing", "cprofile"],
    "tags": ["t"],
    "notes": "n",
}
NAMES = {
    *("name", "run_id", "parameters", "iterations", "metrics", "iteration_metrics", "environment", "vcs"),
    *("artifacts", "tags", "notes", "status"),
}


def test_every_point_is_a_file_with_the_twelve_names(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = proctor.run(SPEC)
    assert main(["export", "latest", "out", "--format", "runresult", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"run_id": run.id, "path": "out", "points": 2}
    files = sorted(Path("out").glob("*.json"))
    assert [each.name for each in files] == ["statement-0.json", "statement-1.json"]
    found = json.loads(files[0].read_text())
    assert set(found) == NAMES
    assert found["iterations"] == {"warmup": 2, "measured": 6}
    assert [row["index"] for row in found["iteration_metrics"]] == list(range(6))
    assert all(set(row) == {"index", "duration_s", "metrics"} for row in found["iteration_metrics"])
    assert found["metrics"]["duration_s"]["count"] == 6
    assert (found["status"], found["tags"], found["notes"]) == ("success", ["t"], "n")
    assert found["artifacts"]
    assert all(set(each) == {"name", "type", "path"} for each in found["artifacts"])
    assert all(Path("out", each["path"]).stat().st_size for each in found["artifacts"])
    assert main(["compare", str(files[0]), str(files[0]), "--metric", "cpu_s"]) in {0, 3}
    assert "cpu_s" in capsys.readouterr().out


def test_rollouts_have_no_such_layout(store_rollouts, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    store_rollouts({("org/hello", "oracle"): [1.0]})
    assert main(["export", "latest", "out", "--format", "runresult"]) == 2
    assert "this layout is for experiments" in capsys.readouterr().err
    assert not Path("out").exists()
