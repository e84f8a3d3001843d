from __future__ import annotations

import pytest

from proctor.errors import FenceError
from proctor.model.trial import RunStatus
from proctor.store.open import open_store

RUN = "20260101-aaaa"


@pytest.fixture
def store(store_url: str, make):
    with open_store(store_url) as opened:
        make.run(opened)
        yield opened


def test_one_holder_at_a_time_has_the_lease_of_a_run(store):
    first = store.coordination.take(RUN, holder="a", lease_s=60)
    assert first is not None
    assert store.coordination.holder(RUN) == first
    assert store.coordination.take(RUN, holder="b", lease_s=60) is None
    store.coordination.release(first)
    assert store.coordination.holder(RUN) is None
    second = store.coordination.take(RUN, holder="b", lease_s=60)
    assert second is not None
    assert second.fence > first.fence


def test_a_lease_that_ended_or_whose_holder_is_dead_is_taken_over(store):
    assert store.coordination.take(RUN, holder="a", lease_s=0)
    assert store.coordination.take(RUN, holder="b", lease_s=60)
    assert store.coordination.take(RUN, holder="c", lease_s=60, dead="b")


def test_a_holder_whose_lease_has_passed_on_can_neither_renew_nor_write(store):
    first = store.coordination.take(RUN, holder="a", lease_s=0)
    second = store.coordination.take(RUN, holder="b", lease_s=60)
    assert not store.coordination.renew(first, 60)
    with pytest.raises(FenceError, match="another process"):
        store.set_status(RUN, RunStatus.DONE, lease=first)
    assert store.run(RUN).status is RunStatus.PENDING
    store.coordination.release(first)
    assert store.coordination.holder(RUN) == second
    store.set_status(RUN, RunStatus.RUNNING, lease=second)
    assert store.run(RUN).status is RunStatus.RUNNING


def test_a_renewed_lease_lasts(store):
    lease = store.coordination.take(RUN, holder="a", lease_s=0)
    assert store.coordination.renew(lease, 60)
    assert store.coordination.take(RUN, holder="b", lease_s=60) is None
