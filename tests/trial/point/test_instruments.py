"""Samplers look when they are due; one that fails is named and the others go on."""

from __future__ import annotations

import os

import pytest

from proctor.instruments import base
from proctor.instruments.base import Sampler, register_instrument
from proctor.trial.point.instruments import Samplers


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setattr(base, "INSTRUMENTS", dict(base.INSTRUMENTS))
    monkeypatch.setattr(base, "_PLACES", dict(base._PLACES))

    @register_instrument("watching")
    class Watching(Sampler):
        def __init__(self, **options):
            super().__init__(**options)
            self.seen = []

        def sample(self, pid):
            self.seen.append(pid)

        def close(self):
            return {"seen": self.seen}

    @register_instrument("blind")
    class Blind(Sampler):
        def sample(self, pid):
            raise OSError("cannot see")


def asked(*names: str) -> list[dict]:
    return [{"name": name, "options": {}} for name in names]


def test_the_first_look_is_at_once_and_the_next_when_it_is_due(tmp_path):
    samplers = Samplers(asked("watching"), str(tmp_path), os.getpid())
    samplers.look()
    assert 0 < samplers.wait_s() <= 0.1
    samplers._due["watching"] = 0.0
    assert samplers.wait_s() == 0
    samplers.look()
    assert samplers.close() == {"watching": {"summary": {"seen": [os.getpid()] * 2}}}


def test_one_that_fails_is_named(tmp_path):
    samplers = Samplers(asked("blind", "watching", "unheard_of"), str(tmp_path), 1)
    found = samplers.close()
    assert found["blind"]["error"] == "OSError: cannot see"
    assert "no instrument named" in found["unheard_of"]["error"]
    assert found["watching"]["summary"]["seen"] == [1]


def test_none_at_all_wait_for_ever(tmp_path):
    samplers = Samplers([], str(tmp_path), 1)
    assert samplers.wait_s() == float("inf")
    assert samplers.close() == {}
