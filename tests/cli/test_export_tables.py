from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from proctor.cli.main import main


@pytest.fixture
def study(store_rollouts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ends = {("org/hello", "oracle"): [1.0, 0.5, None], ("org/hello", "nop"): [0.0, "sandbox_error"]}
    return store_rollouts(ends, folder=True)


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_run_becomes_tables_of_trials_and_attempts(study, capsys):
    assert main(["export", "latest", "out", "--format", "csv"]) == 0
    assert "attempts.csv" in capsys.readouterr().out
    trials, attempts = read(Path("out/trials.csv")), read(Path("out/attempts.csv"))
    assert [row["reward"] for row in trials] == ["1.0", "0.5", "", "0.0", ""]
    assert [row["attempts"] for row in trials] == ["1", "1", "0", "1", "1"]
    assert [row["outcome"] for row in attempts] == ["passed", "partial", "failed", "sandbox_error"]
    assert {row["counts"] for row in attempts} == {"true"}
    assert not Path("out/iterations.csv").exists(), "rollouts have no iterations"


def test_a_folder_and_a_receipt_give_the_same_tables(study, capsys, monkeypatch, tmp_path):
    assert main(["receipt", "latest", "r.zip"]) == 0
    assert main(["export", "latest", "one", "--format", "csv"]) == 0
    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path / "nowhere"))
    assert main(["export", study.folder, "two", "--format", "csv"]) == 0
    assert main(["export", "r.zip", "three", "--format", "csv"]) == 0
    for name in ("trials.csv", "attempts.csv"):
        texts = {Path(folder, name).read_text() for folder in ("one", "two", "three")}
        assert len(texts) == 1


def test_parquet_by_default_beside_where_one_stands(study, capsys):
    assert main(["export", study.id, "--format", "parquet", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["path"] == f"study-{study.id}-parquet"
    assert [each["name"] for each in done["tables"]] == ["trials.parquet", "attempts.parquet"]
    assert Path(done["path"], "trials.parquet").read_bytes().startswith(b"PAR1")


def test_tables_never_overwrite_and_a_failure_leaves_nothing(study, capsys):
    Path("out").mkdir()
    assert main(["export", "latest", "out", "--format", "csv"]) == 0
    assert main(["export", "latest", "out", "--format", "csv"]) == 2
    assert "already exists" in capsys.readouterr().err
    assert main(["export", "nobody", "x", "--format", "csv"]) == 2
    assert not Path("x").exists()
    Path("changed.zip").write_bytes(b"no")
    assert main(["export", "changed.zip", "x", "--format", "csv"]) == 2


def test_a_changed_receipt_is_not_read(study, capsys):
    assert main(["receipt", "latest", "r.zip"]) == 0
    raw = bytearray(Path("r.zip").read_bytes())
    raw[raw.index(b"series.jsonl") + 40] ^= 8
    Path("r.zip").write_bytes(raw)
    assert main(["export", "r.zip", "x", "--format", "csv"]) == 2
    assert "'proctor verify r.zip' shows more" in capsys.readouterr().err


def test_the_folder_is_still_what_export_writes(study):
    assert main(["export", "latest", "folder"]) == 0
    assert Path("folder/manifest.json").is_file()
