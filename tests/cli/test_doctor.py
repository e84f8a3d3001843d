from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from proctor.cli.doctor import examine
from proctor.cli.main import main
from proctor.settings import Settings, load_settings
from proctor.store.open import open_store


def test_the_doctor_says_what_works(capsys):
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    for name in ("python", "home", "store", "load", "pace", "git"):
        assert name in shown


@pytest.mark.needs("bubblewrap")
def test_the_doctor_makes_a_sandbox_and_speaks_to_machines(capsys):
    assert main(["doctor", "--json"]) == 0
    findings = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert findings["python"]["state"] == "ok"
    assert findings["bubblewrap: a sandbox of the host's own system"]["state"] == "ok"


def test_a_broken_store_is_broken_and_says_what_to_do(capsys):
    store = Path(load_settings().store_url)
    store.parent.mkdir(parents=True)
    store.write_bytes(b"not a database at all" * 100)
    assert main(["doctor"]) == 4
    assert "store: " in capsys.readouterr().out


def test_a_sound_store_is_sound():
    with open_store(load_settings().store_url):
        pass
    found = {each.name: each for each in examine(load_settings())}
    assert found["store"].state == "ok"
    assert "no run yet" in found["store"].detail


def test_a_blob_that_is_missing_is_noticed(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("s.json").write_text(
        '{"experiment": "memory_db", "params": {"num_agents": 2, "num_steps": 2}, "iterations": 2,'
        ' "instrumentation": ["cprofile"]}'
    )
    assert main(["run", "s.json"]) == 0
    settings = load_settings()
    found = {each.name: each for each in examine(settings)}
    assert found["blobs"].state == "ok"
    some = next(path for path in Path(settings.blobs_url).glob("*/*") if path.is_file())
    some.unlink()
    found = {each.name: each for each in examine(settings)}
    assert found["blobs"].state == "broken"
    assert some.name[:12] in found["blobs"].detail
    assert main(["doctor"]) == 4


def test_a_check_that_fails_is_a_finding(monkeypatch):
    def broken() -> tuple[float, float, float]:
        raise OSError("no load here")

    monkeypatch.setattr(os, "getloadavg", broken)
    findings = {each.name: each for each in examine(Settings())}
    assert findings["machine"].state == "warning"
    assert "no load here" in findings["machine"].detail
