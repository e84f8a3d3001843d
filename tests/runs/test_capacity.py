"""How many trials at a time, where that may change."""

from __future__ import annotations

import pytest

from proctor.runs.capacity import Capacity, Scale, used_share
from proctor.settings import Settings


@pytest.mark.parametrize(
    ("parallel", "running", "busy", "then"),
    [(2, 2, 0.5, 4), (8, 8, 0.1, 10), (8, 8, 0.95, 4), (8, 1, 0.1, 4), (2, 0, 0.1, 2), (8, 6, 0.5, 8)],
)
def test_a_worker_grows_while_it_is_full_and_the_machine_has_room(parallel, running, busy, then):
    assert Scale(2, 10).next(parallel, running, busy) == then


def test_the_machine_says_what_it_offers():
    found = Capacity.here(Settings(sandbox="fake"), ("gpu",))
    assert "fake" in found.offers.backends
    assert {"gpu", "fake"} <= set(found.offers.labels)
    assert any(each.startswith("arch=") for each in found.offers.labels)
    assert found.offers.memory_mb > 0
    assert used_share() >= 0
    said = found.described("w", 3, running=1, run="", draining=False)
    assert (said.parallel, said.running, said.labels) == (3, 1, found.offers.labels)
