"""What is said of a store that fails, and when it is tried again."""

from __future__ import annotations

import logging

from proctor.errors import StoreError
from proctor.store.outage import FIRST_PAUSE_S, LONGEST_PAUSE_S, Outage

LOG = logging.getLogger("proctor.test")


def test_an_outage_is_said_once_and_tries_become_rarer_until_it_is_over(caplog):
    now = [0.0]
    outage = Outage(LOG, clock=lambda: now[0])
    outage.worked()
    assert not outage.resting
    pauses = []
    for _ in range(20):
        outage.failed(StoreError("disk I/O error"))
        began = now[0]
        while outage.resting:
            now[0] += FIRST_PAUSE_S
        pauses.append(now[0] - began)
    assert pauses[:3] == [1.0, 2.0, 4.0]
    assert pauses[-1] == LONGEST_PAUSE_S
    assert [each.message for each in caplog.records] == [
        "the store fails, and is tried again ever more rarely: disk I/O error"
    ]
    assert outage.goes_on
    outage.worked()
    outage.worked()
    assert not outage.goes_on
    assert [each.message for each in caplog.records[1:]] == ["the store works again"]
    outage.failed(StoreError("again"))
    assert len(caplog.records) == 3
