"""Calls of a store from an event loop: a remote one in a thread of its own."""

from __future__ import annotations

import threading

import pytest

from proctor.errors import NotFoundError
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
