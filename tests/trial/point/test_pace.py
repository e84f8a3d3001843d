"""The machine's pace, on gauges that a table gives: no clock is read here, save in one test."""

from __future__ import annotations

from itertools import chain, repeat
from pathlib import Path

import pytest

from proctor.trial.point.pace import (
    CALM_UP_TO,
    FORGOTTEN_AFTER_S,
    PATIENCE_S,
    WATCH_S,
    KnownPace,
    Pace,
    gauge_ns,
)


class Machine:
    """Gauges one after another, the last for ever; sleeping takes no time and is counted."""

    def __init__(self, *gauges: int) -> None:
        self._gauges = chain(gauges, repeat(gauges[-1]))
        self.slept_s = 0.0

    def gauge(self) -> int:
        return next(self._gauges)

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds

    def pace(self, best_ns: int = 100, patience_s: float = 1.0) -> Pace:
        return Pace({"best_ns": best_ns, "patience_s": patience_s}, gauge=self.gauge, sleep=self.sleep)


def test_a_loop_takes_time():
    assert gauge_ns() > 1_000


def test_the_same_steps_are_counted_whatever_the_clock_says():
    ticks = iter((5, 105))
    assert gauge_ns(lambda: next(ticks)) == 100


def test_a_calm_machine_is_not_waited_for():
    machine = Machine(100, 110)
    pace = machine.pace()
    pace.await_calm()
    assert pace.kept()
    assert machine.slept_s == 0


def test_a_disturbed_machine_is_waited_for_until_it_is_calm():
    machine = Machine(170, 180, 160, 101, 102)
    pace = machine.pace()
    pace.await_calm()
    assert pace.calm()
    assert pace.kept()
    assert pace.waited_s == machine.slept_s > 0


def test_patience_ends():
    machine = Machine(170)
    pace = machine.pace(patience_s=0.5)
    pace.await_calm()
    assert not pace.patient
    assert not pace.calm()
    assert machine.slept_s == pytest.approx(0.5, abs=0.01)


def test_a_slot_counts_only_when_it_was_calm_before_and_after():
    pace = Machine(100, 170, 100, 100).pace()
    assert [pace.kept(), pace.kept(), pace.kept()] == [False, False, True]


def test_the_limit_itself_is_calm():
    pace = Machine(round(100 * CALM_UP_TO)).pace()
    assert pace.calm()


def test_an_unknown_machine_is_watched_and_its_best_is_taken():
    machine = Machine(170, 180, 90, 150)
    pace = machine.pace(best_ns=0)
    assert pace.best_ns == 90
    assert machine.slept_s == pytest.approx(WATCH_S, abs=0.01)
    assert pace.waited_s == 0


def test_a_machine_that_turns_out_faster_is_noticed_when_ten_looks_agree():
    pace = Machine(*[170] * 3, *[100] * 30).pace(best_ns=170)
    noticed = []
    for _ in range(20):
        pace.kept()
        noticed.append(pace.is_faster())
    assert noticed.count(True) == 1
    assert pace.best_ns == 100
    assert pace.to_mapping() == {"best_ns": 100, "quickest_ns": 100, "waited_s": 0.0}


def test_one_quick_look_changes_nothing():
    pace = Machine(100, 50, *[100] * 30).pace()
    for _ in range(20):
        pace.kept()
        assert not pace.is_faster()
    assert pace.best_ns == 100


def test_a_few_looks_are_too_few_for_a_pace():
    assert Machine(100).pace().to_mapping()["quickest_ns"] is None


CALM = {"best_ns": 100, "quickest_ns": 100, "short": True, "calm": True}
NEVER_CALM = {"best_ns": 100, "quickest_ns": 160, "short": True, "calm": False}


def test_nothing_is_known_at_first_and_what_was_learnt_is_known_next_time(tmp_path: Path):
    home = tmp_path / "home"
    first = KnownPace(home)
    assert first.to_mapping() == {"best_ns": 0, "patience_s": PATIENCE_S}
    first.learn(CALM)
    assert KnownPace(home).to_mapping()["best_ns"] == 100
    assert [each.name for each in home.iterdir()] == ["pace.json"]


def test_the_pace_of_another_machine_or_a_broken_file_is_not_taken(tmp_path: Path):
    file = tmp_path / "pace.json"
    KnownPace(tmp_path).learn(CALM)
    file.write_text(file.read_text().replace("CPython", "Other"))
    assert KnownPace(tmp_path).to_mapping()["best_ns"] == 0
    file.write_text("{")
    assert KnownPace(tmp_path).to_mapping()["best_ns"] == 0


def test_a_better_pace_is_taken_at_once_and_a_worse_one_by_and_by():
    pace = KnownPace(None)
    pace.learn(CALM)
    pace.learn(CALM | {"quickest_ns": 90})
    assert pace.to_mapping()["best_ns"] == 90
    pace.learn(CALM | {"quickest_ns": 110})
    assert 90 < pace.to_mapping()["best_ns"] < 95


def test_patience_is_halved_in_vain_and_comes_back_with_calm():
    pace = KnownPace(None)
    pace.learn(CALM)
    pace.learn(NEVER_CALM)
    pace.learn(NEVER_CALM)
    assert pace.to_mapping() == {"best_ns": 100, "patience_s": PATIENCE_S / 4}
    pace.learn(CALM)
    assert pace.to_mapping()["patience_s"] == PATIENCE_S


def test_a_pace_that_is_not_seen_for_long_is_forgotten():
    now = 0.0
    pace = KnownPace(None, clock=lambda: now)
    pace.learn(CALM)
    now = FORGOTTEN_AFTER_S + 1
    pace.learn(NEVER_CALM)
    assert pace.to_mapping()["best_ns"] == 160


def test_long_slots_say_nothing_about_patience_but_leave_a_first_pace():
    pace = KnownPace(None)
    pace.learn({"best_ns": 120, "quickest_ns": None, "short": False, "calm": False})
    assert pace.to_mapping() == {"best_ns": 120, "patience_s": PATIENCE_S}


def test_a_home_that_cannot_be_written_to_is_no_trouble(tmp_path: Path):
    (tmp_path / "home").write_text("a file")
    pace = KnownPace(tmp_path / "home")
    pace.learn(CALM)
    assert pace.to_mapping()["best_ns"] == 100
