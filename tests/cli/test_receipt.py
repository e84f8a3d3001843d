from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.cli.main import main
from proctor.model.plan import Plan, PlannedTrial, trial_key
from proctor.model.record import AttemptRecord, Outcome
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.settings import load_settings
from proctor.store.open import open_store
from proctor.trial.point.aggregate import aggregate


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A measured run in the store that the commands read."""
    monkeypatch.chdir(tmp_path)
    trials, attempts = [], []
    for index in range(2):
        params = {"size": index}
        key = trial_key(subject_digest="d" * 64, params=params)
        trial = PlannedTrial(
            key=key, index=index, kind="experiment", subject="sort", subject_digest="d" * 64, body=0,
            params=params,
        )  # fmt: skip
        rows = tuple({"iteration": at, "duration_s": 0.001 * (at + 1)} for at in range(6))
        record = AttemptRecord(
            key=key, number=1, outcome=Outcome.PASSED, started_at=1000.0 + index, ended_at=1000.5 + index,
            iterations=rows, metrics=aggregate(rows), notes=("=1+1",),
        )  # fmt: skip
        trials.append(trial)
        attempts.append((record, True))
    plan = Plan(trials=tuple(trials))
    info = RunInfo(
        id="20260901T000000-abcdef", name="sorting", kind="experiment", status=RunStatus.DONE,
        created_at=999.0, started_at=1000.0, finished_at=1010.0, seed=0, total=2, plan_digest=plan.digest,
    )  # fmt: skip
    with open_store(load_settings().store_url) as store:
        store.import_run(info, plan.trials, attempts)
    return info


def said(capsys, *words: object) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_a_run_is_packed_and_verified_without_the_store(run, capsys, monkeypatch, tmp_path):
    code, out, _ = said(capsys, "receipt", "latest")
    assert code == 0
    name = "sorting-20260901T000000-abcdef.receipt.zip"
    assert out.startswith(name)
    root = out.splitlines()[1].removeprefix("root  ")
    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path / "nowhere"))
    code, out, _ = said(capsys, "verify", name, "--expect", f"sha256:{root.upper()}")
    assert code == 0
    assert "verified: every digest matches" in out
    assert root in out
    assert not (tmp_path / "nowhere").exists(), "verifying makes no store"


def test_the_same_as_json(run, capsys, tmp_path):
    code, out, _ = said(capsys, "receipt", run.id, tmp_path / "r.zip", "--json")
    packed = json.loads(out)
    assert code == 0
    assert packed["run_id"] == run.id
    assert packed["left_out"] == 0
    assert packed["size_bytes"] == (tmp_path / "r.zip").stat().st_size
    code, out, _ = said(capsys, "verify", tmp_path / "r.zip", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["verified"]
    assert found["root"] == packed["root"]
    assert found["run"]["trials"] == 2
    assert found["differences"] == []


def test_a_flipped_byte_has_exit_code_1_and_its_file_is_named(run, capsys, tmp_path):
    said(capsys, "receipt", "latest", tmp_path / "r.zip")
    raw = bytearray((tmp_path / "r.zip").read_bytes())
    raw[raw.index(b"README.md") + 60] ^= 4
    (tmp_path / "r.zip").write_bytes(raw)
    code, out, _ = said(capsys, "verify", tmp_path / "r.zip")
    assert code == 1
    assert "NOT verified" in out
    assert "  README.md: " in out
    code, out, _ = said(capsys, "verify", tmp_path / "r.zip", "--json")
    assert code == 1
    assert "README.md" in {each["file"] for each in json.loads(out)["differences"]}


def test_another_root_than_expected_has_exit_code_1(run, capsys, tmp_path):
    said(capsys, "receipt", "latest", tmp_path / "r.zip")
    code, out, _ = said(capsys, "verify", tmp_path / "r.zip", "--expect", "0" * 64)
    assert code == 1
    assert "NOT verified: 1 difference\n" in out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("verify", "absent.zip"), "no such file"),
        (("verify", "text"), "not a receipt"),
        (("verify", "text", "--expect", "abc"), "64 hexadecimal digits"),
        (("receipt", "nobody"), "no run goes by 'nobody'"),
    ],
)
def test_what_cannot_be_done_has_exit_code_2(run, capsys, words, reason):
    Path("text").write_text("hello")
    code, _, err = said(capsys, *words)
    assert code == 2
    assert reason in err


def test_a_run_folder_that_no_store_knows_can_be_packed(run, capsys, monkeypatch, tmp_path):
    said(capsys, "export", "latest", "folder")
    said(capsys, "receipt", "latest", "one.zip")
    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path / "elsewhere"))
    code, out, _ = said(capsys, "receipt", "folder", "two.zip")
    assert code == 0
    assert out.splitlines()[1] in subprocess_free_root("one.zip", capsys)
    assert said(capsys, "verify", "two.zip")[0] == 0


def subprocess_free_root(path: str, capsys) -> str:
    root = json.loads(said(capsys, "verify", path, "--json")[1])["root"]
    return f"root  {root}"


def test_many_differences_are_cut_and_their_number_told(run, capsys, tmp_path, monkeypatch):
    from proctor.cli import verify

    said(capsys, "receipt", "latest", tmp_path / "r.zip")
    raw = (tmp_path / "r.zip").read_bytes()
    (tmp_path / "r.zip").write_bytes(b"before" + raw)
    monkeypatch.setattr(verify, "SHOWN", 2)
    code, out, _ = said(capsys, "verify", tmp_path / "r.zip")
    assert code == 1
    assert "more; --json lists them" in out


def test_neither_command_imports_anything_heavy(run, tmp_path):
    probe = (
        "import sys\nfrom proctor.cli.main import main\n"
        "assert main(['receipt', 'latest', 'r.zip']) == 0\nassert main(['verify', 'r.zip']) == 0\n"
        "heavy = {'numpy', 'sqlalchemy', 'rich', 'asyncio', 'psutil', 'yaml'} & sys.modules.keys()\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
