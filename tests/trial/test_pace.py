"""What is remembered of a machine's pace."""

from __future__ import annotations

from pathlib import Path

from proctor.trial.pace import FORGOTTEN_AFTER_S, PATIENCE_S, KnownPace

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
