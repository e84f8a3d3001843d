"""Fresh stores, upgraded stores and the tables in Python are one schema, on both databases."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, inspect, text

from proctor.errors import StoreError
from proctor.model.trial import RunStatus
from proctor.store import database, migrations, rows, sqlite, tables
from proctor.store.open import open_store

RUN = "20260101-aaaa"


def test_the_newest_revision_is_the_one_the_store_asks_for():
    script = ScriptDirectory.from_config(migrations.config())
    assert script.get_heads() == [database.HEAD]


def test_the_sql_for_new_files_is_made_from_the_tables():
    written = Path(sqlite.__file__).with_name("schema.sql").read_text()
    assert written == tables.sqlite_schema(), "run: python -m proctor.store.tables"


def test_a_new_file_has_the_schema_that_the_migrations_make(tmp_path: Path):
    open_store(str(tmp_path / "quick.db")).close()
    migrations.upgrade_sqlite(str(tmp_path / "migrated.db"))
    assert _described(tmp_path / "quick.db") == _described(tmp_path / "migrated.db")
    assert _revision(tmp_path / "quick.db") == _revision(tmp_path / "migrated.db") == database.HEAD


@pytest.mark.parametrize("made_by", ["schema.sql", "migrations"])
def test_a_sqlite_store_has_the_tables_of_the_metadata(tmp_path: Path, made_by: str):
    path = tmp_path / "n.db"
    if made_by == "migrations":
        migrations.upgrade_sqlite(str(path))
    else:
        open_store(str(path)).close()
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        assert _differences(connection) == []
    engine.dispose()


@pytest.mark.needs("postgres")
def test_a_postgres_store_has_the_tables_of_the_metadata(postgres_url: str):
    with open_store(postgres_url) as store:
        assert store.runs() == []
    engine = create_engine(postgres_url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        assert _differences(connection) == []
        partial = {
            index["name"]: index["dialect_options"]["postgresql_where"]
            for table in ("trials", "attempts")
            for index in inspect(connection).get_indexes(table)
            if index.get("dialect_options", {}).get("postgresql_where")
        }
    engine.dispose()
    assert set(partial) == {"trials_pending", "trials_leased", "attempts_that_count", "attempts_by_subject"}


def test_opening_an_older_file_upgrades_it_and_keeps_the_data(
    tmp_path: Path, make, later_revision: str, monkeypatch: pytest.MonkeyPatch
):
    path = str(tmp_path / "n.db")
    with open_store(path) as store:
        make.answered(store)
    monkeypatch.setattr(sqlite, "HEAD", later_revision)
    monkeypatch.setattr(database, "HEAD", later_revision)
    with open_store(path) as store:
        assert store.counts(RUN) == {"passed": 3}
        assert store._db.read("SELECT mood FROM runs")[0][0] == "calm"
        assert store.check() == []
    assert _revision(Path(path)) == later_revision


@pytest.mark.needs("postgres")
def test_opening_an_older_postgres_store_upgrades_it_and_keeps_the_data(
    postgres_url: str, make, later_revision: str, monkeypatch: pytest.MonkeyPatch
):
    from proctor.store import postgres

    with open_store(postgres_url) as store:
        make.answered(store)
    monkeypatch.setattr(postgres, "HEAD", later_revision)
    monkeypatch.setattr(database, "HEAD", later_revision)
    with open_store(postgres_url) as store:
        assert store.counts(RUN) == {"passed": 3}
        assert store._db.read("SELECT mood FROM runs")[0][0] == "calm"


def test_a_failed_upgrade_leaves_the_file_as_it_was(
    tmp_path: Path, make, later_revision: str, monkeypatch: pytest.MonkeyPatch
):
    path, current = str(tmp_path / "n.db"), database.HEAD
    with open_store(path) as store:
        make.answered(store)
        with store._db.write() as tx:
            tx.change("ALTER TABLE runs ADD COLUMN mood TEXT")
    monkeypatch.setattr(sqlite, "HEAD", later_revision)
    monkeypatch.setattr(database, "HEAD", later_revision)
    with pytest.raises(StoreError, match="could not be upgraded"):
        open_store(path)
    assert _revision(Path(path)) == current


@pytest.mark.parametrize("revision", ["9999", "banana"])
def test_a_store_of_a_newer_version_is_refused_and_not_touched(store_url: str, make, revision: str):
    with open_store(store_url) as store:
        make.run(store)
        with store._db.write() as tx:
            tx.change("UPDATE proctor_schema SET version_num = :to", {"to": revision})
    with pytest.raises(StoreError, match=rf"schema {revision} .* newer Proctor"):
        open_store(store_url)


def test_rollouts_of_an_older_store_get_the_time_of_agent_and_verifier(tmp_path: Path):
    path = str(tmp_path / "old.db")
    migrations.upgrade_sqlite(path, "0001")
    phases = [
        {"image": 40.0, "agent": 2.0, "verify": 1.0},
        {"image": 1.0},
        {"agent": 2, "verify": 1, "collect": 3.0} | {f"more-{at}": 0.123456789 for at in range(200)},
    ]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO runs VALUES ('r', 1, 'r', 'task', 'done', 1, 2, 3, '', '{}', x'')")
        for idx, each in enumerate(phases):
            connection.execute(
                "INSERT INTO trials (run_id, idx, key, kind, subject, subject_digest, body, rollout, doc, "
                "state, fence, attempts, ready_at) "
                "VALUES ('r', ?, ?, 'task', 't', 'd', 0, 0, '{}', 'done', 1, 1, 0)",
                [idx, f"k{idx}"],
            )
            connection.execute(
                "INSERT INTO attempts VALUES ('r', ?, 1, 't', 'passed', 1, 0, 50, 1, '', ?)",
                [idx, rows.pack({"phases_s": each})],
            )
        connection.commit()
    migrations.upgrade_sqlite(path)
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT work_s FROM attempts ORDER BY idx").fetchall()
    assert found == [(3.0,), (None,), (3.0,)]


def test_open_runs_of_an_older_store_say_what_their_trials_need(tmp_path: Path):
    path = str(tmp_path / "old.db")
    migrations.upgrade_sqlite(path, "0002")
    with closing(sqlite3.connect(path)) as connection:
        for run, status, sandbox in (
            ("open", "interrupted", {"backend": "podman", "memory_bytes": (1 << 30) + 1}),
            ("auto", "running", {"backend": "auto", "memory_bytes": None}),
            ("over", "done", {"backend": "podman"}),
        ):
            detail = rows.pack({"resolved": {"sandbox": sandbox}})
            connection.execute(
                "INSERT INTO runs VALUES (?, 1, 'r', 'task', ?, 1, 2, 1, '', '{}', ?)", [run, status, detail]
            )
            connection.execute(
                "INSERT INTO trials (run_id, idx, key, kind, subject, subject_digest, body, rollout, doc, "
                "state, fence, attempts, ready_at) "
                "VALUES (?, 0, 'k', 'task', 't', 'd', 0, 0, '{}', 'pending', 1, 1, 0)",
                [run],
            )
        connection.execute("INSERT INTO events (run_id, at, kind, data) VALUES ('open', 1, 'old', '{}')")
        connection.execute(f"PRAGMA application_id = {sqlite.APPLICATION_ID}")
        connection.commit()
    with open_store(path) as store:
        found = store._db.read("SELECT run_id, backend, memory_mb FROM trials ORDER BY run_id")
        store.set_status("open", RunStatus.RUNNING)
        assert [event.kind for event in store.events()] == ["old", "run.resumed"]
    assert found == [("auto", "", 0), ("open", "podman", 1025), ("over", "", 0)]


@pytest.mark.needs("postgres")
def test_events_of_an_older_postgres_store_come_before_those_that_follow(postgres_url: str, make):
    engine = create_engine(postgres_url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        migrations.upgrade(connection, "0002")
        connection.execute(
            text("INSERT INTO runs VALUES ('r', 1, 'r', 'task', 'pending', 1, 2, 0, '', '{}', :detail)"),
            {"detail": rows.pack({})},
        )
        for kind in ("first", "second"):
            connection.execute(
                text("INSERT INTO events (run_id, at, kind, data) VALUES ('r', 1, :kind, '{}')"),
                {"kind": kind},
            )
    engine.dispose()
    with open_store(postgres_url) as store:
        store.set_status("r", RunStatus.RUNNING)
        assert [event.kind for event in store.events()] == ["first", "second", "run.resumed"]


@pytest.mark.needs("postgres")
def test_events_copied_from_a_server_with_higher_numbers_are_read_and_come_first(postgres_url: str, make):
    with open_store(postgres_url) as store:
        make.run(store)
        store.set_status(RUN, RunStatus.RUNNING)
        with store._db.write() as tx:
            tx.change("UPDATE events SET id = id + (1000000000 * 65536::bigint)")
        assert store.events() == []
    with open_store(postgres_url) as store:
        store.set_status(RUN, RunStatus.DONE)
        kinds = [event.kind for event in store.events()]
    assert kinds == ["run.created", "run.started", "run.finished"]


@pytest.fixture
def later_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A revision after the newest, that adds a column."""
    folder = tmp_path / "later"
    folder.mkdir()
    (folder / "v0099.py").write_text(
        "import sqlalchemy as sa\nfrom alembic import op\n"
        f"revision = '0099'\ndown_revision = '{database.HEAD}'\n"
        "def upgrade():\n"
        "    op.add_column('runs', sa.Column('mood', sa.Text, server_default='calm'))\n"
    )
    plain = migrations.config

    def config(connection: Connection | None = None):
        settings = plain(connection)
        packaged = Path(migrations.__file__).parent / "versions"
        settings.set_main_option("version_locations", f"{packaged}\n{folder}")
        settings.set_main_option("path_separator", "newline")
        return settings

    monkeypatch.setattr(migrations, "config", config)
    return "0099"


def _differences(connection: Connection) -> list[object]:
    context = MigrationContext.configure(
        connection, opts={"version_table": database.VERSION_TABLE, "compare_server_default": True}
    )
    return compare_metadata(context, tables.metadata)


def _described(path: Path) -> dict[str, object]:
    """Every table as SQLite understands it, whatever the words it was made with."""
    with closing(sqlite3.connect(path)) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {
            name: {
                "strict": connection.execute("SELECT strict FROM pragma_table_list(?)", [name]).fetchone(),
                "columns": connection.execute("SELECT * FROM pragma_table_xinfo(?)", [name]).fetchall(),
                "keys": sorted(
                    row[1:] for row in connection.execute("SELECT * FROM pragma_foreign_key_list(?)", [name])
                ),
                "indexes": sorted(
                    (index, unique, partial, _words(connection, index))
                    for _, index, unique, _, partial in connection.execute(
                        "SELECT * FROM pragma_index_list(?)", [name]
                    )
                ),
                "checks": _checks(connection, name),
            }
            for name in sorted(names)
        }


def _words(connection: sqlite3.Connection, name: str) -> str:
    found = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", [name]).fetchone()[0]
    return " ".join((found or "").split())


def _checks(connection: sqlite3.Connection, name: str) -> list[str]:
    lines = (
        connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", [name]).fetchone()[0].splitlines()
    )
    return sorted(line.strip(" ,\t") for line in lines if "CHECK" in line or "AUTOINCREMENT" in line)


def _revision(path: Path) -> str:
    engine = create_engine(f"sqlite:///{path}")
    try:
        with engine.connect() as connection:
            return connection.execute(text(f"SELECT version_num FROM {database.VERSION_TABLE}")).scalar_one()
    finally:
        engine.dispose()
