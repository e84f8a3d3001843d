"""A store behind a pooler that gives every transaction any session: nothing may be left to a session."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.poolers import TransactionPooler
from tests.taking import take

from proctor.errors import UsageError
from proctor.model.trial import RunStatus
from proctor.store.backup import backup
from proctor.store.open import open_store
from proctor.store.postgres import PostgresDatabase

pytestmark = pytest.mark.needs("postgres")
RUN = "20260101-aaaa"
SETTINGS = "SELECT current_setting('statement_timeout'), current_setting('lock_timeout')"


@pytest.fixture
def pooled_url(postgres_url: str) -> Iterator[str]:
    parts = urlsplit(postgres_url)
    pooler = TransactionPooler(parse_qs(parts.query)["host"][0], parts.path.strip("/"))
    yield f"postgresql://postgres@127.0.0.1:{pooler.port}{parts.path}?sslmode=disable"
    pooler.close()


def test_trials_are_taken_and_finished_and_counted_once(pooled_url: str, make):
    with open_store(pooled_url) as store:
        make.run(store, size=20)
        for _ in range(20):  # a driver prepares what it has seen five times, in the session that it has then
            (lease,) = take(store, RUN)
            store.finish(lease, make.record(lease), counts=True)
        assert take(store, RUN) == []
        assert len(list(store.attempts(RUN, counted_only=True))) == 20


def test_time_outs_hold_for_a_transaction_and_for_nobody_else(pooled_url: str, postgres_url: str):
    database = PostgresDatabase(f"{pooled_url}&statement_timeout_s=7", busy_s=3)
    try:
        for _ in range(3):
            with database.write() as transaction:
                assert transaction.execute(SETTINGS) == [("7s", "3s")]
            assert database.read(SETTINGS) == [("0", "0")], (
                "a session keeps nothing: it is somebody else's next"
            )
    finally:
        database.close()


def test_a_reader_sees_what_others_wrote_although_it_cannot_listen(pooled_url: str, make):
    with ExitStack() as stack:
        reader, writer = (stack.enter_context(open_store(pooled_url)) for _ in range(2))
        make.run(writer)
        last = reader.views.events.last()
        threading.Timer(0.2, lambda: writer.set_status(RUN, RunStatus.RUNNING)).start()
        for _ in range(100):
            mark = reader.views.events.mark()
            if found := reader.views.events.after(last, limit=10):
                break
            reader.views.events.wait(mark, 5.0)
        assert found


def test_a_copy_needs_the_server_itself(pooled_url: str, tmp_path):
    open_store(pooled_url).close()
    with pytest.raises(UsageError, match=r"pooler.*the server's own address"):
        backup(pooled_url, tmp_path / "copy")
