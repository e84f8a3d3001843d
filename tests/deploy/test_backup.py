"""A dump and a copy of the blobs, taken while a run goes on, are enough to finish it elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.postgres import _postgres_binaries

from proctor.store.open import open_store

SPEC = """experiment: sorting
name: kept
sweep: {size: [10, 20, 30]}
iterations: {warmup: 0, measured: 1}
"""
LOST = (
    "DELETE FROM attempts WHERE run_id = :run AND idx = 2",
    "UPDATE trials SET state = 'pending', outcome = NULL WHERE run_id = :run AND idx = 2",
    "UPDATE runs SET status = 'interrupted', finished_at = NULL WHERE id = :run",
    "UPDATE run_counts SET trials = trials - 1 WHERE run_id = :run AND state = 'done' AND trials > 0",
)
"""As if the dump had been taken before the last trial ended."""


def proctor(store: str, home: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "proctor.cli.main", *words],
        cwd=home,
        env=os.environ | {"PROCTOR_STORE": store, "PROCTOR_HOME": str(home / ".proctor")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.needs("postgres")
def test_a_restored_store_goes_on_with_what_was_missing(postgres_server, postgres_url, tmp_path):
    import psycopg

    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    shutil.copytree(Path(__file__).parents[2] / "experiments.d", old / "experiments.d")
    (old / "spec.yaml").write_text(SPEC)
    proctor(postgres_url, old, "run", "spec.yaml", "--experiments", "experiments.d")
    with open_store(postgres_url) as store:
        (run,) = store.runs(limit=1)
        with store._db.write() as tx:
            for each in LOST:
                tx.execute(each, {"run": run.id})
    dump = tmp_path / "proctor.dump"
    programs = _postgres_binaries()
    subprocess.run([programs / "pg_dump", "-Fc", "-f", dump, postgres_url], check=True)
    shutil.copytree(old, new)
    shutil.rmtree(old)
    name = f"t{time.monotonic_ns()}"
    with psycopg.connect(postgres_server("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            restored = postgres_server(name)
            subprocess.run([programs / "pg_restore", "--no-owner", "-d", restored, dump], check=True)
            proctor(restored, new, "resume", run.id)
            with open_store(restored) as store:
                found = store.run(run.id)
                assert (found.status, found.done, found.total) == ("done", 3, 3)
                assert store.check() == []
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
