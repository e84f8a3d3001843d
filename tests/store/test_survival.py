"""A PostgreSQL server that is crashed and started again, and cuts connections, while workers commit."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.postgres import restartable_server
from tests.taking import take

from proctor.errors import FenceError, StoreError, UsageError
from proctor.model.trial import Lease
from proctor.store import migrations
from proctor.store.again import LostError
from proctor.store.database import HEAD
from proctor.store.open import open_store
from proctor.store.postgres import PostgresDatabase
from proctor.store.postgres_line import Line, parse

RUN = "20260101-aaaa"
TRIALS = 500
CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = %s"


def cut(url: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as other:
        other.execute(CUT, [other.info.dbname])


class Workers:
    """Four that claim and finish until nothing is left, each with a store of its own."""

    def __init__(self, url: str, make) -> None:
        self.url, self.make = url, make
        self.refused: list[str] = []
        self.failed: list[BaseException] = []
        self.threads = [threading.Thread(target=self._work, args=(f"w{number}",)) for number in range(4)]

    def _work(self, name: str) -> None:
        try:
            with open_store(self.url) as store:
                while leases := take(store, RUN, worker=name, lease_s=300, limit=2):
                    for lease in leases:
                        try:
                            store.finish(lease, self.make.record(lease), counts=True)
                        except FenceError:
                            self.refused.append(lease.key)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self.failed.append(error)


@pytest.mark.needs("postgres")
@pytest.mark.timeout(240)
def test_every_trial_is_done_exactly_once_whatever_happens_to_the_server(make):
    with restartable_server() as (url, restart), open_store(url) as store:
        make.run(store, size=TRIALS)
        workers = Workers(url, make)
        for each in workers.threads:
            each.start()
        for number, act in enumerate((restart, lambda: cut(url), restart, lambda: cut(url)), 1):
            deadline = time.monotonic() + 60
            while store.run(RUN).done < number * TRIALS // 6 and time.monotonic() < deadline:
                time.sleep(0.01)
            act()
        for each in workers.threads:
            each.join(120)
        assert workers.failed == []
        # No lease was forgotten and no answer misread: what was taken is what was finished.
        assert workers.refused == []
        attempts = Counter(row.record.key for row in store.attempts(RUN))
        assert len(attempts) == TRIALS
        assert set(attempts.values()) == {1}
        assert store.run(RUN).done == TRIALS
        ended = [each for each in store.events(run_id=RUN, limit=10 * TRIALS) if each.kind == "trial.done"]
        assert len(ended) == TRIALS
        assert store.check() == []


@pytest.mark.needs("postgres")
@pytest.mark.timeout(240)
def test_what_a_server_keeps_is_written_once_although_the_database_starts_again():
    """What a request writes waits for the database; it is neither refused nor made twice."""
    with restartable_server() as (url, restart), open_store(url) as store:
        service, done, failed = store.service, [0], []
        over = threading.Event()

        def write() -> None:
            try:
                while not over.is_set():
                    number = done[0]
                    assert service.answers.claim("ada", f"key {number}", "same") is None
                    service.audit.add("ada", "run.submit", f"run {number}")
                    service.schedules.delete(f"schedule {number}")
                    done[0] += 1
            except BaseException as error:  # noqa: BLE001 - shown by the test
                failed.append(error)

        writing = threading.Thread(target=write)
        writing.start()
        try:
            restart()
            after, deadline = done[0] + 3, time.monotonic() + 60
            while done[0] < after and not failed and time.monotonic() < deadline:
                time.sleep(0.01)
        finally:
            over.set()
            writing.join(90)
        assert failed == []
        assert done[0] >= after
        assert len(service.audit.page(None, limit=1 << 20)) == done[0]


@pytest.mark.needs("postgres")
def test_a_commit_whose_answer_is_lost_is_looked_up_and_not_made_twice(
    postgres_url: str, make, monkeypatch: pytest.MonkeyPatch
):
    """The connection breaks after the server has committed: that the run is there is no conflict."""
    with open_store(postgres_url) as store:
        _lose_answers(monkeypatch, postgres_url, commits=True)
        make.run(store)
        monkeypatch.undo()
        assert store.run(RUN).total == 3
        assert [each.kind for each in store.events(run_id=RUN)] == ["run.created"]


@pytest.mark.needs("postgres")
def test_a_commit_that_did_not_arrive_is_made_again(postgres_url: str, make, monkeypatch: pytest.MonkeyPatch):
    with open_store(postgres_url) as store:
        _lose_answers(monkeypatch, postgres_url, commits=False)
        make.run(store)
        monkeypatch.undo()
        assert store.run(RUN).total == 3
        assert [each.kind for each in store.events(run_id=RUN)] == ["run.created"]


def _lose_answers(monkeypatch: pytest.MonkeyPatch, url: str, *, commits: bool) -> None:
    """Cut the first commit's connection, after the server did it or before."""
    from psycopg import Connection

    real: Callable[[Connection], None] = Connection.commit
    lost: list[int] = []

    def commit(self: Connection) -> None:
        if not lost:
            lost.append(1)
            if commits:
                real(self)
            cut(url)
            self.execute("SELECT 1")  # notices that the connection is gone
        real(self)

    monkeypatch.setattr(Connection, "commit", commit)


@pytest.mark.needs("postgres")
def test_what_takes_longer_than_the_stated_time_is_an_error(monkeypatch: pytest.MonkeyPatch, make):
    with restartable_server() as (url, _), open_store(f"{url}&wait_s=0.3") as store:
        make.run(store)
        monkeypatch.setattr(PostgresDatabase, "_live", _gone)
        with pytest.raises(StoreError, match="gone"):
            store.run(RUN)
        with pytest.raises(StoreError, match="gone"):
            store.renew([Lease(RUN, "k", 0, "w", 1, 1, 0.0)], lease_s=1)
        monkeypatch.undo()


def _gone(self: PostgresDatabase) -> None:
    error = LostError("the server is gone")
    error.wait_s = 0.3
    raise error


@pytest.mark.needs("postgres")
def test_a_process_of_an_older_version_stops_writing_when_the_schema_moved_on(
    postgres_url: str, make, monkeypatch: pytest.MonkeyPatch
):
    import psycopg

    with open_store(postgres_url) as store, psycopg.connect(postgres_url, autocommit=True) as newer:
        make.run(store)
        newer.execute("UPDATE proctor_schema SET version_num = '9999'")
        monkeypatch.setattr("proctor.store.postgres._LOOK_S", -1.0)
        with pytest.raises(StoreError, match=r"schema 9999 .* Upgrade Proctor"):
            take(store, RUN, worker="w", lease_s=30)


def test_the_options_of_an_address_are_ours_and_the_rest_is_the_drivers():
    address, line = parse("postgresql+psycopg://me@h/d?connections=5&wait_s=7&sslmode=require")
    assert line == Line(connections=5, wait_s=7.0)
    assert dict(address.query) == {"sslmode": "require"}


@pytest.mark.parametrize("option", ["connections=0", "connections=many", "wait_s=-1"])
def test_an_option_that_makes_no_sense_is_refused(option: str):
    with pytest.raises(UsageError, match="invalid store address"):
        open_store(f"postgresql://me@h/d?{option}")


@pytest.mark.needs("postgres")
def test_every_connection_has_its_time_outs_and_its_name(postgres_url: str):
    with open_store(f"{postgres_url}&statement_timeout_s=7") as store:
        shown = [store._db.read(f"SHOW {name}")[0][0] for name in ("statement_timeout", "lock_timeout")]
        assert shown == ["7s", "30s"]
        assert store._db.read("SHOW idle_in_transaction_session_timeout")[0][0] == "5min"
        assert store._db.read("SHOW application_name")[0][0].startswith("proctor ")


def test_a_process_that_has_a_file_open_stops_writing_when_the_schema_moved_on(
    sqlite_store, make, monkeypatch: pytest.MonkeyPatch
):
    make.run(sqlite_store)
    with sqlite3.connect(sqlite_store.where) as newer:
        newer.execute("UPDATE proctor_schema SET version_num = '9999'")
    newer.close()
    monkeypatch.setattr("proctor.store.sqlite._LOOK_S", -1.0)
    with pytest.raises(StoreError, match=r"schema 9999 .* Upgrade Proctor"):
        take(sqlite_store, RUN, worker="w", lease_s=30)


@pytest.mark.needs("postgres")
def test_an_upgrade_waits_for_the_tables_in_turns_and_lets_others_go_on(
    postgres_url: str, make, later_revision: str, monkeypatch: pytest.MonkeyPatch
):
    """Somebody holds a table for longer than the upgrade's patience: readers are not held up meanwhile."""
    import psycopg

    monkeypatch.setattr("proctor.store.postgres._LOCK_S", 1)
    upgraded: list[str] = []

    def upgrade() -> None:
        with open_store(postgres_url) as store:
            upgraded.append(store.run(RUN).id)

    with psycopg.connect(postgres_url) as holder, psycopg.connect(postgres_url, autocommit=True) as reader:
        holder.execute("SELECT count(*) FROM runs")
        newer = threading.Thread(target=upgrade)
        newer.start()
        deadline = time.monotonic() + 60
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"
        while not reader.execute(waiting).fetchone()[0] and time.monotonic() < deadline:
            time.sleep(0.01)
        assert reader.execute("SELECT count(*) FROM runs").fetchone() == (1,)
        assert upgraded == []
        holder.rollback()
        newer.join(60)
    assert upgraded == [RUN]


@pytest.fixture
def later_revision(postgres_url: str, make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A version that knows one more change of the schema, with a store of the version before."""
    with open_store(postgres_url) as store:
        make.run(store)
    real = migrations.config
    (tmp_path / "v9000.py").write_text(
        f"from alembic import op\nrevision, down_revision = '9000', '{HEAD}'\n"
        "def upgrade():\n    op.execute('ALTER TABLE runs ADD COLUMN later integer')\n"
    )

    def config(connection: object = None) -> object:
        found = real(connection)
        folders = f"{Path(migrations.__file__).parent / 'versions'}{os.pathsep}{tmp_path}"
        found.set_main_option("version_locations", folders)
        found.set_main_option("path_separator", "os")
        return found

    monkeypatch.setattr(migrations, "config", config)
    monkeypatch.setattr("proctor.store.postgres.HEAD", "9000")
    monkeypatch.setattr("proctor.store.database.HEAD", "9000")
    return "9000"
