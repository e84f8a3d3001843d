"""Workers with a role of their own in a real PostgreSQL: they execute trials, and see no account or key."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from tests.faults import chaos
from tests.faults.chaos import Cluster
from tests.providers import serving

from proctor.errors import Exit, StoreError, UsageError
from proctor.gateway.provider.script import commands
from proctor.gateway.provider.server import FakeProvider
from proctor.store.open import open_store
from proctor.store.service import tables as service_tables
from proctor.store.tables import metadata
from proctor.store.worker_role import CLOSED, RIGHTS, set_up

ROLE = f"proctor_worker_{os.getpid()}"
SECRET = ("provider_keys", "tokens", "users", "audit", "sessions", "members", "webhooks", "answers")
pytestmark = pytest.mark.needs("postgres")


@pytest.fixture
def role(request: pytest.FixtureRequest) -> Iterator[None]:
    import psycopg

    address = request.getfixturevalue("postgres_server")("postgres")
    yield
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"DROP ROLE IF EXISTS {ROLE}")


def as_role(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{ROLE}@{parts.netloc.partition('@')[2]}"))


def test_it_is_decided_of_every_table_whether_a_worker_sees_it():
    assert service_tables
    assert RIGHTS.keys() - {"proctor_schema"} | CLOSED == metadata.tables.keys()
    assert not RIGHTS.keys() & CLOSED
    assert set(SECRET) < CLOSED


def test_the_role_reads_no_account_and_no_key_and_changes_no_plan(postgres_url, role):
    import psycopg

    open_store(postgres_url).close()
    set_up(postgres_url, ROLE, "a pass'word")
    with psycopg.connect(postgres_url) as connection:
        (kept,) = connection.execute(
            "SELECT rolpassword FROM pg_authid WHERE rolname = %s", [ROLE]
        ).fetchone()
    assert kept.startswith("SCRAM-SHA-256$")
    refused = [
        *(f"SELECT * FROM {table}" for table in sorted(CLOSED)),
        "INSERT INTO tokens (id) VALUES ('x')",
        "UPDATE runs SET status = 'done'",
        "DELETE FROM runs",
        "UPDATE trials SET doc = ''",
        "DELETE FROM trials",
        "DELETE FROM attempts",
        "UPDATE attempts SET reward = 1",
        "DELETE FROM events",
        "UPDATE run_service SET wanted = 1",
        "UPDATE projects SET day_usd = 1",
        "CREATE TABLE own (a int)",
        "DROP TABLE trials",
        f"ALTER ROLE {ROLE} SUPERUSER",
    ]
    with psycopg.connect(as_role(postgres_url), autocommit=True) as worker:
        for statement in refused:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                worker.execute(statement)
        worker.execute("SELECT * FROM runs")
    with psycopg.connect(postgres_url) as connection:
        connection.execute(f"GRANT SELECT ON tokens TO {ROLE}")
    set_up(postgres_url, ROLE, None)
    with (
        psycopg.connect(as_role(postgres_url)) as worker,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        worker.execute("SELECT * FROM tokens")
    with open_store(as_role(postgres_url)) as store:
        assert store.runs() == []
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP OWNED BY {ROLE}")


def test_what_is_wrong_is_said(postgres_url, role):
    open_store(postgres_url).close()
    with pytest.raises(UsageError, match="is no name for a role"):
        set_up(postgres_url, "a; DROP TABLE runs", None)
    with pytest.raises(UsageError, match="the role of this very address"):
        set_up(postgres_url, "postgres", None)
    with pytest.raises(StoreError, match="was not made"):
        set_up(postgres_url.replace("postgres@", "nobody_here@"), ROLE, None)


def test_a_worker_that_is_newer_than_the_schema_says_who_upgrades_it(postgres_url, role):
    import psycopg

    open_store(postgres_url).close()
    set_up(postgres_url, ROLE, None)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("UPDATE proctor_schema SET version_num = '0011'")
        with pytest.raises(StoreError, match=r"may not .* run 'proctor db upgrade' as the owner"):
            open_store(as_role(postgres_url))
        connection.execute(f"DROP OWNED BY {ROLE}")


def test_a_role_for_sqlite_is_refused(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "proctor.cli.main", "db", "worker-role", ROLE],
        env={**os.environ, "PROCTOR_STORE": str(tmp_path / "s.db")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == Exit.USAGE
    assert "roles are for PostgreSQL" in done.stderr


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Cluster]:
    with chaos.cluster(tmp_path / "servers", PROCTOR_MODEL_API_KEY=chaos.SECRET) as servers:
        yield servers


@pytest.mark.fault
@pytest.mark.needs("redis", "bubblewrap")
def test_a_worker_with_the_role_executes_a_run_to_its_end(made: Cluster, tmp_path: Path):
    """With a model, a budget and an experiment: gateways, limits and spending are in the store too."""
    import psycopg

    owner = made.environ["PROCTOR_STORE"]
    done = made.proctor("db", "worker-role", ROLE, cwd=tmp_path, WORKER_PASSWORD="x")
    said = done.communicate(timeout=120)[0]
    assert done.returncode == 0, said
    project = tmp_path / "project"
    spec = chaos.write_spec(project, 2, 0.1)
    document = json.loads(spec.read_text())
    document["tasks"][0] |= {"agent": ["terminal", "oracle"], "model": "fake"}
    document["budget_tokens"] = 1_000_000
    spec.write_text(json.dumps(document))
    (project / "fast.py").write_text(
        "from proctor import Experiment, register_experiment\n"
        "@register_experiment('fast')\n"
        "class Fast(Experiment):\n"
        "    def execute_once(self, context):\n"
        "        return {'n': 1}\n"
    )
    measured = project / "fast.json"
    measured.write_text(json.dumps({"experiment": "fast", "sources": ["fast.py"], "iterations": 2}))
    with serving(FakeProvider(commands("echo yes > /app/solved"), latency_s=0.0)) as provider:
        here = {"PROCTOR_MODEL_BASE_URL": provider.base_url}
        machine = made.add("w", parallel=2, PROCTOR_STORE=as_role(owner), **here)
        machine.start()
        for file in (spec, measured):
            run = made.proctor("run", str(file), "--engine", "celery", cwd=project, **here)
            said = run.communicate(timeout=200)[0]
            assert run.returncode == 0, said + logs(tmp_path)
        queue = made.proctor(
            "queue", "--json", cwd=project, PROCTOR_STORE=as_role(owner), PROCTOR_URL="local"
        )
        said = queue.communicate(timeout=60)[0]
        assert queue.returncode == 0, said
    with open_store(owner) as store:
        outcomes = [row.record.outcome.value for run in store.runs() for row in store.attempts(run.id)]
        assert store.check() == []
    with psycopg.connect(owner) as connection:
        workers = connection.execute(
            "SELECT DISTINCT usename FROM pg_stat_activity WHERE usename = %s", [ROLE]
        )
        assert workers.fetchall(), "the worker is that role"
        (calls,) = connection.execute("SELECT count(*) FROM model_calls").fetchone()
    assert calls
    assert outcomes == ["passed"] * 5
    assert "permission denied" not in logs(tmp_path)


def logs(folder: Path) -> str:
    found = [*folder.rglob("*.log"), *folder.rglob("log*")]
    return "\n".join(file.read_text(errors="replace")[-4000:] for file in found if file.is_file())
