"""What only a server can suffer: not being there, a wrong address, somebody's long lock."""

from __future__ import annotations

import sys

import pytest

from proctor.errors import MissingExtraError, StoreError, UsageError
from proctor.model.trial import RunStatus
from proctor.store.open import open_store
from proctor.store.postgres import PostgresDatabase

RUN = "20260101-aaaa"


def test_a_server_that_is_not_there_is_said_without_the_password():
    with pytest.raises(StoreError, match="cannot be reached") as caught:
        open_store("postgresql://me:secret@127.0.0.1:1/db")
    assert "secret" not in str(caught.value)
    assert "postgresql://me:***@127.0.0.1:1/db" in str(caught.value)


def test_an_address_that_cannot_be_read_is_a_usage_error():
    with pytest.raises(UsageError, match="invalid store address"):
        open_store("postgresql://me@host:port:port/db")


def test_a_missing_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"proctor-bench\[postgres\]"):
        open_store("postgresql://me@host/db")


@pytest.mark.needs("postgres")
def test_a_table_that_someone_holds_is_said_and_works_again_after(postgres_url: str, make):
    import psycopg

    with open_store(postgres_url, busy_s=0.05) as store, psycopg.connect(postgres_url) as other:
        make.run(store)
        other.execute("LOCK TABLE runs IN EXCLUSIVE MODE")
        with pytest.raises(StoreError, match="no other session locks the tables"):
            store.set_status(RUN, RunStatus.RUNNING)
        other.rollback()
        store.set_status(RUN, RunStatus.RUNNING)


@pytest.mark.needs("postgres")
def test_a_connection_that_the_server_cut_is_replaced(postgres_url: str, make):
    import psycopg

    with open_store(postgres_url) as store, psycopg.connect(postgres_url, autocommit=True) as other:
        make.run(store)
        cut = """
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE pid <> pg_backend_pid() AND datname = %s
        """
        other.execute(cut, [other.info.dbname])
        assert store.run(RUN).total == 3


@pytest.mark.needs("postgres")
def test_a_statement_that_the_server_refuses_is_a_store_error(postgres_url: str):
    with open_store(postgres_url) as store, pytest.raises(StoreError, match="PostgreSQL refused"):
        store._db.read("SELECT * FROM nowhere")


@pytest.mark.needs("postgres")
def test_a_database_without_an_encoding_serves_too(postgres_server):
    """As `initdb` makes one in the C locale."""
    import psycopg

    name = "without_encoding"
    with psycopg.connect(postgres_server("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
        try:
            with open_store(postgres_server(name)) as store:
                assert list(store.runs()) == []
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.needs("postgres")
def test_a_connection_that_is_given_back_after_the_store_was_closed_is_closed_too(postgres_url: str):
    database = PostgresDatabase(postgres_url)
    with database._pool.connection() as first, database._pool.connection() as second:
        database.close()
        assert not first.closed  # whoever uses it may come to an end
    assert first.closed
    assert second.closed


@pytest.mark.needs("postgres")
def test_who_begins_to_listen_while_the_store_is_closed_leaves_no_connection(postgres_url: str, monkeypatch):
    database = PostgresDatabase(postgres_url)
    opened = []

    def close_meanwhile() -> object:
        database.close()
        opened.append(database._connect())
        return opened[0]

    monkeypatch.setattr(database, "_opened", close_meanwhile)
    database.mark()
    assert opened[0].closed
