"""How long an answer about a run that goes on is sent again."""

from __future__ import annotations

import time
from types import SimpleNamespace

import msgspec
import pytest

from proctor.server.reading.made_once import _known, _made
from proctor.server.reading.reading import Reading


class Runs:
    """A store whose one run is in a status."""

    def __init__(self, status: str) -> None:
        self.views = SimpleNamespace(runs=self)
        self.status = status

    def listed(self, **_: object) -> list[SimpleNamespace]:
        return [SimpleNamespace(status=self.status, stamp=(self.status,))]


@pytest.fixture
def answered():
    """What is sent at a time, with how many answers were made so far."""
    reading, made = Reading(), []

    def at(store: Runs, now: float, cpu_s: float = 0.0) -> int:
        def make(*_: object) -> dict[str, int]:
            end = time.thread_time() + cpu_s
            while time.thread_time() < end:
                pass
            made.append(now)
            return {"made": len(made)}

        found = _known(store, reading, "k", ["r"], now) or _made(store, reading, "k", ["r"], now, make)
        return int(msgspec.json.decode(found)["made"])

    return at


def test_what_is_quick_to_make_is_at_most_a_second_old(answered):
    going = Runs("running")
    assert [answered(going, 100 + at) for at in (0.0, 0.9, 1.0, 1.5)] == [1, 1, 2, 2]


def test_what_takes_long_to_make_is_made_less_often(answered):
    going = Runs("running")
    assert [answered(going, 100 + at, 0.1) for at in (0.0, 1.9, 60.0)] == [1, 1, 2]


def test_the_answer_about_a_run_that_has_ended_is_made_once_more(answered):
    run = Runs("running")
    assert answered(run, 100.0) == 1
    run.status = "done"
    assert [answered(run, at) for at in (100.1, 900.0)] == [2, 2]
