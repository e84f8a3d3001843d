"""Names become instruments before anything runs, or an error says what was meant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar

import pytest

from proctor.errors import MissingExtraError, UsageError
from proctor.instruments import base
from proctor.instruments.base import (
    INSTRUMENTS,
    Instrument,
    Sampler,
    Wrapper,
    create,
    names,
    register_instrument,
    resolve,
)
from proctor.model.spec import InstrumentSpec


@pytest.fixture(autouse=True)
def _registry(monkeypatch):
    monkeypatch.setattr(base, "INSTRUMENTS", dict(INSTRUMENTS))
    monkeypatch.setattr(base, "_PLACES", dict(base._PLACES))


def spec(name: str, **options) -> InstrumentSpec:
    return InstrumentSpec(name=name, options=options)


class Rider(Instrument):
    rides_along = True
    defaults: ClassVar = {"volume": 3, "gain": 0.5, "loud": False}


class Alone(Instrument):
    pass


def test_the_built_in_ones_are_there_and_say_how_they_run():
    wanted = {
        "timing",
        "psutil",
        "cprofile",
        "tracemalloc",
        "memray",
        "pyinstrument",
        "counters",
        "cachegrind",
    }
    assert wanted <= set(names())
    found = resolve([spec(name) for name in ("timing", "cprofile", "psutil", "tracemalloc", "counters")])
    assert [each.name for each in found.riding] == ["timing", "psutil", "counters"]
    assert [each.name for each in found.own_pass] == ["cprofile", "tracemalloc"]


def test_an_unknown_name_gives_the_nearest():
    with pytest.raises(UsageError, match="no instrument named 'cprofiler'; did you mean 'cprofile'"):
        resolve([spec("cprofiler")])
    with pytest.raises(UsageError, match=r"there are .*cprofile, .*timing"):
        resolve([spec("zzzzzz")])


def test_a_name_given_twice_is_refused():
    with pytest.raises(UsageError, match="'psutil' is listed twice"):
        resolve([spec("psutil"), spec("psutil", interval_ms=50)])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"interval": 5}, "no option 'interval'; did you mean 'interval_ms'"),
        ({"zzz": 5}, "its options: interval_ms, children"),
        ({"interval_ms": "often"}, "interval_ms is 'often', which is not int"),
        ({"interval_ms": True}, "which is not int"),
        ({"interval_ms": 0}, "must be above 0"),
        ({"children": 1}, "which is not bool"),
        ({"iterations": 3}, "no option 'iterations'"),
    ],
)
def test_wrong_options_are_refused_by_name(options, words):
    with pytest.raises(UsageError, match=words):
        resolve([spec("psutil", **options)])


def test_an_instrument_with_its_own_pass_takes_the_number_of_iterations():
    assert create(spec("cprofile", iterations=7, top=5)).iterations == 7
    assert create(spec("cprofile")).iterations == 3


def test_a_whole_number_will_do_for_a_fraction():
    register_instrument("rider")(Rider)
    made = create(spec("rider", gain=2, volume=4))
    assert made.options == {"volume": 4, "gain": 2, "loud": False}


def test_a_missing_package_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(base, "_installed", lambda _: False)
    with pytest.raises(MissingExtraError, match=r"pip install 'proctor-bench\[profilers\]'"):
        resolve([spec("memray")])


def test_counters_with_cachegrind_are_two_instruments(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    found = resolve([spec("counters", cachegrind=True)])
    assert [each.name for each in found.riding] == ["counters"]
    assert [each.name for each in found.own_pass] == ["cachegrind"]


def test_a_registered_class_has_its_name_and_may_be_imported_twice():
    register_instrument("alone")(Alone)
    register_instrument("alone")(Alone)
    assert Alone.name == "alone"
    assert resolve([spec("alone")]).own_pass == (spec("alone"),)


def test_a_taken_name_is_refused():
    register_instrument("mine")(Rider)
    with pytest.raises(UsageError, match="'mine' already exists"):
        register_instrument("mine")(Alone)
    with pytest.raises(UsageError, match="'timing' already exists"):
        register_instrument("timing")(Alone)


def test_the_same_function_defined_again_is_the_same():
    def make():
        @contextmanager
        def watch() -> Iterator[None]:
            yield

        return watch

    register_instrument("watch")(make())
    register_instrument("watch")(make())


def test_any_context_manager_will_do_and_gives_metrics_by_what_it_yields():
    @register_instrument("plain")
    @contextmanager
    def plain(start: int = 1) -> Iterator[dict]:
        seen = {"start": start, "word": "no number"}
        yield seen
        seen["end"] = start + 1

    made = create(spec("plain", start=5))
    assert not made.rides_along
    with made:
        pass
    assert made.metrics() == {"start": 5, "end": 6}
    with pytest.raises(UsageError, match="does not take these options"):
        create(spec("plain", begin=5))


def test_what_makes_no_context_manager_is_refused():
    register_instrument("wrong")(lambda: 3)
    with pytest.raises(UsageError, match="returned int, not a context manager"):
        create(spec("wrong"))


def test_a_plain_one_may_yield_nothing():
    @register_instrument("quiet")
    @contextmanager
    def quiet() -> Iterator[None]:
        yield

    made = create(spec("quiet"))
    made.__exit__(None, None, None)
    with made:
        pass
    assert made.metrics() == {}


def test_entry_points_are_instruments_too(monkeypatch):
    point = EntryPoint("extra", f"{__name__}:Rider", base.ENTRY_POINTS)
    monkeypatch.setattr(EntryPoint, "load", lambda _: Rider)
    monkeypatch.setattr(base, "_entry_points", lambda: [point])
    assert "extra" in names()
    assert resolve([spec("extra")]).riding == (spec("extra"),)


def test_the_base_does_nothing_and_says_what_is_missing():
    made = Instrument()
    made.open(Path("here"))
    with made:
        pass
    assert (made.folder, made.metrics(), made.close()) == (Path("here"), {}, {})
    assert Sampler(interval_ms=1).interval_s == 0.05
    with pytest.raises(NotImplementedError):
        Sampler().sample(1)
    with pytest.raises(NotImplementedError):
        Wrapper().runs()
    with pytest.raises(NotImplementedError):
        Wrapper().wrap([], 1)
