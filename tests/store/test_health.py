"""What a store says of itself: closed, or out of step."""

from __future__ import annotations

import pytest
from tests.store.workers import RUN

from proctor.errors import StoreError
from proctor.model.trial import RunStatus
from proctor.store.open import open_store


def test_a_closed_store_says_so(store_url: str):
    store = open_store(store_url)
    store.close()
    store.close()
    with pytest.raises(StoreError, match="the store is closed"):
        store.runs()
    with pytest.raises(StoreError, match="the store is closed"):
        store.set_status("r", RunStatus.DONE)


def test_check_finds_counters_that_drifted_and_results_that_went_missing(store_url: str, make):
    with open_store(store_url) as store:
        make.answered(store)
        with store._db.write() as tx:
            tx.change("UPDATE run_counts SET trials = 9")
            tx.change("DELETE FROM attempts WHERE idx = 1")
        assert store.check() == [
            f"run {RUN}: the counters do not match the trials",
            f"run {RUN}: a trial is done without a result",
        ]
