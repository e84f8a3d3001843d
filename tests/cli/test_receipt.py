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
from proctor.trial.point.calibrate import aggregate


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
    assert (found["verified"], found["consistent"], found["origin_checked"]) == (False, True, False)
    assert found["signature"]["standing"] == "none"
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
        (("receipt", "nobody"), "no run named 'nobody'"),
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


def test_without_a_digest_or_a_key_the_origin_is_not_called_verified(run, capsys, tmp_path):
    said(capsys, "receipt", "latest", tmp_path / "r.zip")
    code, out, _ = said(capsys, "verify", tmp_path / "r.zip")
    assert code == 0
    assert "\nconsistent in itself; the origin was not checked" in out
    assert "verified" not in out
    code, out, _ = said(capsys, "verify", tmp_path / "r.zip", "--json")
    assert json.loads(out)["sentence"].startswith("consistent in itself; the origin was not checked")


@pytest.fixture
def signed(run, capsys, tmp_path, monkeypatch):
    """A signed receipt, and the public key."""
    monkeypatch.setenv("PROCTOR_KEYS_DIR", str(tmp_path / "keys"))
    assert said(capsys, "keys", "new")[0] == 0
    code, out, _ = said(capsys, "receipt", "latest", "signed.zip", "--sign")
    assert code == 0
    key = said(capsys, "keys", "show")[1].strip()
    assert f"signed by {key}\n" in out
    return key


def test_a_signed_receipt_is_verified_by_the_text_the_file_or_the_name_of_its_key(signed, capsys, tmp_path):
    Path("team.keys").write_text(f"# who may publish\n\n{'ed25519:' + 'A' * 43 + '='} someone\n{signed} us\n")
    for trust in (signed, tmp_path / "keys/default.pub", "default", "team.keys"):
        code, out, _ = said(capsys, "verify", "signed.zip", "--trust", trust)
        assert code == 0
        assert "\nverified: " in out
        assert "a key that you trust signed it" in out
    code, out, _ = said(capsys, "verify", "signed.zip", "--trust", signed, "--json")
    found = json.loads(out)
    assert (code, found["verified"], found["signature"]["standing"]) == (0, True, "trusted")
    assert found["signature"]["key"] == signed


def test_a_signature_without_trust_does_not_check_the_origin(signed, capsys):
    code, out, _ = said(capsys, "verify", "signed.zip")
    assert code == 0
    assert f"signature  {signed}, " in out
    assert "the origin was not checked: no trusted key was given for the signature" in out


def test_the_root_is_the_same_with_and_without_a_signature(signed, capsys):
    _, plain, _ = said(capsys, "receipt", "latest", "plain.zip", "--json")
    _, other, _ = said(capsys, "receipt", "latest", "other.zip", "--sign", "default", "--json")
    assert json.loads(plain)["root"] == json.loads(other)["root"]
    assert (json.loads(plain)["signed_by"], json.loads(other)["signed_by"]) == (None, signed)


def test_another_key_a_missing_and_an_expired_signature_have_exit_code_1(signed, capsys, monkeypatch):
    said(capsys, "keys", "new", "other")
    code, out, _ = said(capsys, "verify", "signed.zip", "--trust", "other")
    assert code == 1
    assert f"receipt.json: signed by key {signed}, which is not one that you trust" in out
    said(capsys, "receipt", "latest", "plain.zip")
    code, out, _ = said(capsys, "verify", "plain.zip", "--trust", signed)
    assert code == 1
    assert "there is no signature, and --trust asks for one" in out
    said(capsys, "receipt", "latest", "brief.zip", "--sign", "default", "--valid-days", "2")
    assert said(capsys, "verify", "brief.zip", "--trust", signed)[0] == 0
    import time

    later = time.time() + 3 * 86400
    monkeypatch.setattr(time, "time", lambda: later)
    code, out, _ = said(capsys, "verify", "brief.zip", "--trust", signed)
    assert code == 1
    assert "the signature expired at 20" in out


def test_a_private_key_is_in_no_receipt_and_no_message(signed, capsys, tmp_path):
    secret = (tmp_path / "keys/default.key").read_text()
    body = secret.splitlines()[1]
    seen = Path("signed.zip").read_bytes()
    shown = []
    for words in (
        ("keys", "ls"),
        ("keys", "ls", "--json"),
        ("keys", "show"),
        ("verify", "signed.zip", "--trust", tmp_path / "keys/default.key"),
        ("verify", "signed.zip", "--trust", secret),
        ("verify", "signed.zip", "--trust", body),
    ):
        code, out, err = said(capsys, *words)
        assert code in {0, 2}
        shown += [out, err]
    assert any("this is a private key" in each for each in shown)
    assert not any(body in each for each in shown)
    assert body.encode() not in seen


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("receipt", "--sign", "latest"), "write --sign last"),
        (("receipt",), "RUN is missing"),
        (("receipt", "latest", "r.zip", "--sign", "nobody"), "no key named 'nobody'"),
        (("receipt", "latest", "r.zip", "--valid-days", "3"), "add --sign"),
        (("verify", "signed.zip", "--trust", "absent.pub"), "no such file, and not a public key"),
        (("verify", "signed.zip", "--trust", "ed25519:AAAA"), "not a public key"),
        (("verify", "signed.zip", "--trust", "x" * 300), "not a public key"),
        (("keys", "new"), "already exists"),
        (("keys", "new", "../x"), "use letters"),
    ],
)
def test_a_wrong_key_has_exit_code_2_and_nothing_is_written(signed, capsys, words, reason):
    code, _, err = said(capsys, *words)
    assert code == 2
    assert reason in err
    assert not Path("r.zip").exists()


def test_no_keys_are_no_error(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("PROCTOR_KEYS_DIR", str(tmp_path / "keys"))
    code, out, _ = said(capsys, "keys", "ls")
    assert (code, out) == (0, "No keys. Make one with: proctor keys new\n")
    assert not (tmp_path / "keys").exists()
