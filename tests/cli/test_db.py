"""`proctor db` on stores of both kinds, with blobs in folders and on S3."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.s3 import s3_server
from tests.taking import take

from proctor.cli.main import main
from proctor.model.outcome import Outcome
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.record import AttemptRecord
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.settings import load_settings
from proctor.store.blobs import blobs_of
from proctor.store.database import HEAD
from proctor.store.open import open_store


@pytest.fixture
def home(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROCTOR_STORE", store_url)
    monkeypatch.setenv("PROCTOR_BLOBS", str(tmp_path / "blobs"))
    return tmp_path


def add_run(run_id: str, *contents: bytes) -> list[str]:
    settings = load_settings()
    blobs = blobs_of(settings)
    trial = PlannedTrial(key="k", index=0, kind="experiment", subject="s", subject_digest="d", body=0)
    info = RunInfo(
        id=run_id, name="bench", kind="experiment", status=RunStatus.DONE, created_at=time.time(), seed=1
    )
    with open_store(settings.store_url) as store:
        store.create_run(info, Plan(trials=(trial,)))
        (lease,) = take(store, run_id, worker="w", lease_s=30)
        artifacts = tuple(blobs.put_bytes(content, "a") for content in contents)
        record = AttemptRecord(
            key="k", number=1, outcome=Outcome.PASSED, started_at=1.0, ended_at=2.0, artifacts=artifacts
        )
        store.finish(lease, record, counts=True)
    return [each.digest for each in artifacts]


def runs() -> list[str]:
    with open_store(load_settings().store_url) as store:
        return sorted(run.id for run in store.runs())


def place_of(home: Path, digest: str) -> Path:
    return home / "blobs" / digest[:2] / digest


def test_a_copy_brings_back_runs_and_their_files(home: Path, capsys):
    digest, _ = add_run("run-1", b"one", b"shared")
    copy, files = home / "copy" / "store.backup", home / "copy" / "files"
    assert main(["db", "backup", str(copy), "--blobs", str(files)]) == 0
    assert "2 files copied, 0 were there" in capsys.readouterr().out
    add_run("run-2", b"two")
    place_of(home, digest).unlink()
    assert main(["db", "check"]) == 5
    assert f"missing: {digest}" in capsys.readouterr().out
    assert main(["db", "restore", str(copy), "--blobs", str(files)]) == 2
    assert "add --replace" in capsys.readouterr().err
    assert runs() == ["run-1", "run-2"]
    assert main(["db", "restore", str(copy), "--blobs", str(files), "--replace"]) == 0
    assert "1 files put back, 1 were there" in capsys.readouterr().out
    assert runs() == ["run-1"]
    assert main(["db", "check", "--deep"]) == 0
    assert capsys.readouterr().out == "sound: 2 files, all read and right\n"
    # The store goes on: what comes next has ids of its own.
    add_run("run-3", b"three")
    with open_store(load_settings().store_url) as store:
        ids = [event.id for event in store.events(limit=1000)]
        assert ids == sorted(set(ids))
        assert store.check() == []


def test_a_copy_is_consistent_while_others_write(home: Path):
    add_run("run-0", b"zero")
    ended, failed = threading.Event(), []

    def write() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            try:
                add_run(f"w-{number}", b"w%d" % number)
            except BaseException as error:  # noqa: BLE001 - shown by the test
                failed.append(error)
                return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert main(["db", "backup", str(home / "copy"), "--blobs", str(home / "files")]) == 0
    finally:
        ended.set()
        writer.join()
    assert failed == []
    assert main(["db", "restore", str(home / "copy"), "--replace"]) == 0
    assert main(["db", "check", "--deep"]) == 0
    assert "run-0" in runs()


def test_a_changed_file_is_found_by_a_deep_check(home: Path, capsys):
    digest, _ = add_run("run-1", b"one", b"other")
    place_of(home, digest).write_bytes(b"changed")
    assert main(["db", "check", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sound"]
    assert main(["db", "check", "--deep", "--json"]) == 5
    found = json.loads(capsys.readouterr().out)
    assert found["damaged"] == [digest]
    assert (found["missing"], found["problems"], found["referred"]) == ([], [], 2)
    assert main(["db", "backup", str(home / "copy"), "--blobs", str(home / "files")]) == 5
    assert f"blob {digest}" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"not a copy", b"SQLite format 3\0 but no more"])
def test_what_is_no_copy_is_refused_and_nothing_is_changed(home: Path, content: bytes, capsys):
    add_run("run-1", b"one")
    (home / "copy").write_bytes(content)
    assert main(["db", "restore", str(home / "copy"), "--replace"]) == 2
    assert main(["db", "restore", str(home / "nowhere"), "--replace"]) == 2
    assert str(home / "nowhere") in capsys.readouterr().err
    assert runs() == ["run-1"]


def test_a_copy_of_a_newer_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setenv("PROCTOR_STORE", str(tmp_path / "one.db"))
    add_run("run-1")
    assert main(["db", "backup", str(tmp_path / "copy")]) == 0
    with sqlite3.connect(tmp_path / "copy") as copy:
        copy.execute("UPDATE proctor_schema SET version_num = '9999'")
    copy.close()
    assert main(["db", "restore", str(tmp_path / "copy"), "--replace"]) == 5
    assert "schema 9999" in capsys.readouterr().err
    assert runs() == ["run-1"]


@pytest.mark.needs("postgres")
def test_a_copy_of_the_other_kind_is_refused(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    monkeypatch.setenv("PROCTOR_STORE", str(tmp_path / "one.db"))
    add_run("run-1")
    assert main(["db", "backup", str(tmp_path / "copy")]) == 0
    monkeypatch.setenv("PROCTOR_STORE", postgres_url)
    assert main(["db", "restore", str(tmp_path / "copy")]) == 2
    assert "a copy of a SQLite store, and the store is on PostgreSQL" in capsys.readouterr().err
    monkeypatch.setenv("PATH", "")
    assert main(["db", "backup", str(tmp_path / "other")]) == 2
    assert "'pg_dump' is not installed here" in capsys.readouterr().err


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Put a script in the place of one of PostgreSQL's programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)

    def put(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return put


@pytest.mark.needs("postgres")
def test_a_client_that_is_older_than_the_server_is_said(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, program
):
    monkeypatch.setenv("PROCTOR_STORE", postgres_url)
    add_run("run-1")
    program(
        "pg_dump",
        "echo 'pg_dump: error: aborting because of server version mismatch' >&2\n"
        "echo 'pg_dump: detail: server version: 18.4; pg_dump version: 15.18 (Debian 15.18-0)' >&2; exit 1",
    )
    assert main(["db", "backup", str(tmp_path / "copy")]) == 2
    said = capsys.readouterr().err
    assert "pg_dump is too old (server version: 18.4; pg_dump version: 15.18); install" in said


@pytest.mark.needs("postgres")
def test_a_client_that_is_newer_than_the_server_restores(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program
):
    monkeypatch.setenv("PROCTOR_STORE", postgres_url)
    add_run("run-1")
    assert main(["db", "backup", str(tmp_path / "copy")]) == 0
    # Clients from version 17 on write one setting more, which servers up to version 16 do not know.
    real = shutil.which("pg_restore")
    setting = "SET transaction_timeout = 0;" if server_version(postgres_url) < 17 else ""
    program("pg_restore", f"{real} \"$@\" | sed 's/^SET lock_timeout = 0;$/&\\n{setting}/'")
    assert main(["db", "restore", str(tmp_path / "copy"), "--replace"]) == 0


def server_version(url: str) -> int:
    import psycopg

    with psycopg.connect(url) as connection:
        return connection.info.server_version // 10_000


def test_a_store_that_is_not_there_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setenv("PROCTOR_STORE", str(tmp_path / "none.db"))
    assert main(["db", "backup", str(tmp_path / "copy")]) == 2
    assert "there is no store yet" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_upgrade_says_which_schema_the_store_has(home: Path, capsys):
    assert main(["db", "upgrade"]) == 0
    assert f"schema {HEAD}" in capsys.readouterr().out


def test_garbage_is_shown_and_then_removed(home: Path, capsys):
    digest = add_run("run-1", b"kept")[0]
    loose = blobs_of(load_settings()).put_bytes(b"loose", "x").digest
    for each in (digest, loose):
        os.utime(place_of(home, each), (1, 1))
    assert main(["db", "gc", "--dry-run"]) == 0
    assert "1 files (5 B) would be removed" in capsys.readouterr().out
    assert place_of(home, loose).exists()
    assert main(["db", "gc", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["removed"], found["kept"]) == (1, 1)
    assert not place_of(home, loose).exists()
    assert place_of(home, digest).exists()


def test_everything_works_with_blobs_on_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    with s3_server(tmp_path / "s3") as (url, environ):
        for name, value in {**environ, "PROCTOR_BLOBS": url}.items():
            monkeypatch.setenv(name, value)
        add_run("run-1", b"one", *(b"%d" % number for number in range(30)))
        assert main(["db", "check", "--deep", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["referred"] == 31
        assert main(["db", "backup", str(tmp_path / "c"), "--blobs", str(tmp_path / "files")]) == 0
        assert "31 files copied" in capsys.readouterr().out
        assert main(["db", "gc", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["kept"] == 31
        blobs = blobs_of(load_settings())
        blobs.remove(next(blobs.list()).digest)
        assert main(["db", "check"]) == 5
        restored = ["db", "restore", str(tmp_path / "c"), "--blobs", str(tmp_path / "files"), "--replace"]
        assert main(restored) == 0
        assert "1 files put back, 30 were there" in capsys.readouterr().out
        assert main(["db", "check", "--deep"]) == 0
