"""Calls of a store from an event loop: a remote one in a thread of its own."""

from __future__ import annotations

import threading

import pytest

from proctor.errors import NotFoundError, StoreError
from proctor.store.calls import StoreCalls

pytestmark = pytest.mark.anyio


async def test_only_a_remote_store_is_called_in_a_thread_and_always_in_the_same(store, make):
    make.run(store)
    with StoreCalls(store) as calls:
        threads = {await calls(threading.get_ident) for _ in range(3)}
        assert len(threads) == 1
        assert (threads == {threading.get_ident()}) is not store.remote
        assert [run.id for run in await calls(store.runs, limit=3)] == ["20260101-aaaa"]
        with pytest.raises(NotFoundError):
            await calls(store.run, "nobody")


async def test_what_nobody_waits_for_is_done_in_its_turn_and_what_it_raises_is_said(store, caplog):
    def refused() -> None:
        raise StoreError("the store is away")

    done: list[int] = []
    with StoreCalls(store) as calls:
        calls.later(refused)
        calls.later(done.append, 1)
    assert done == [1]
    assert "the store is away" in caplog.text
