"""Commands that read are left alone, and leave everything as it was."""

from __future__ import annotations

import gc
import os

import pytest

from proctor.cli.reading import undisturbed

THREADS = "OPENBLAS_NUM_THREADS"


@undisturbed
def look(fails: bool = False) -> tuple[bool, str | None]:
    if fails:
        raise ValueError
    return gc.isenabled(), os.environ.get(THREADS)


def test_nothing_is_collected_and_numpy_gets_one_thread(monkeypatch):
    monkeypatch.delenv(THREADS, raising=False)
    assert look() == (False, "1")
    assert gc.isenabled()
    assert THREADS not in os.environ


def test_who_asked_for_threads_gets_them(monkeypatch):
    monkeypatch.setenv(THREADS, "3")
    assert look() == (False, "3")
    assert os.environ[THREADS] == "3"


def test_a_failure_leaves_everything_as_it_was_too(monkeypatch):
    monkeypatch.delenv(THREADS, raising=False)
    with pytest.raises(ValueError):
        look(fails=True)
    assert gc.isenabled()
    assert THREADS not in os.environ


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    try:
        look()
        assert not gc.isenabled()
    finally:
        gc.enable()
