"""Noise is measured around a trial and spoken of when it hides what was asked for."""

from __future__ import annotations

import random
import time

import pytest

from proctor.trial import noise
from proctor.trial.noise import NoiseProbe, judge


@pytest.fixture
def probe():
    return NoiseProbe()


def rows(durations, cpu=1.0, switches=0):
    return [{"duration_s": each, "cpu_s": each * cpu, "involuntary_switches": switches} for each in durations]


def test_a_look_has_the_load_and_the_ticks(probe):
    seen = probe.begin()
    assert seen["load1"] >= 0
    assert seen["ticks"] > seen["steal_ticks"] >= 0


def test_a_short_trial_has_the_load_alone(probe):
    assert set(probe.end(probe.begin())) == {"load1"}


def test_a_longer_trial_has_fractions_of_its_own_time(probe, monkeypatch):
    begun = dict(probe.begin())
    begun["at_s"] -= 10
    begun["ticks"] -= 1000
    begun["steal_ticks"] -= 30
    if "waited_us" in begun:
        begun["waited_us"] -= 5_000_000
    found = probe.end(begun)
    assert 0.02 < found["steal_fraction"] < 0.04
    assert found.get("cpu_pressure", 0.5) == pytest.approx(0.5, abs=0.1)


def test_an_old_look_is_renewed(probe):
    first = probe.begin()
    assert probe.begin() is first
    probe._last["at_s"] = time.monotonic() - 1
    assert probe.begin() is not first


def test_files_that_are_not_there_are_no_error(monkeypatch):
    monkeypatch.setattr(noise, "_read", lambda _: b"")
    probe = NoiseProbe()
    assert set(probe.begin()) == {"at_s"}
    assert probe.end(probe.begin()) == {}
    assert probe.end({"at_s": 0.0}) == {}


def test_the_frequency_is_read_where_there_is_one(tmp_path, monkeypatch):
    file = tmp_path / "freq"
    file.write_text("2400000\n")
    monkeypatch.setattr(noise, "_FREQUENCY", str(file))
    probe = NoiseProbe()
    assert probe.begin()["frequency_mhz"] == 2400


def test_a_quiet_trial_has_no_warning():
    found, notes = judge(rows([1.0, 1.001] * 10), {"load1": 0.3}, asked_effect=0.02, cores=2)
    assert notes == []
    assert found["cpu_over_wall"] == 1.0
    assert found["detectable_effect_duration_s"] < 0.02


def test_an_effect_that_cannot_be_seen_is_named_on_a_coarse_scale():
    draw = random.Random(5)
    noisy = [draw.uniform(0.8, 1.2) for _ in range(30)]
    found, notes = judge(rows(noisy), {}, asked_effect=0.02, cores=2)
    assert found["detectable_effect_duration_s"] > 0.02
    assert notes[0].startswith("too noisy for the requested 2 %: the smallest detectable change is ")
    assert " is 20 % in duration_s; more" in notes[0] or " is 50 % in duration_s; more" in notes[0]


def test_a_steady_cpu_clock_beside_a_wild_wall_clock_is_pointed_at():
    draw = random.Random(5)
    wild = [
        {"duration_s": draw.choice([0.2, 1.0, 9.0]), "cpu_s": 1.0, "involuntary_switches": 500}
        for _ in range(30)
    ]
    ran_ns, waited_ns = 30_000_000_000, 70_000_000_000
    found, notes = judge(wild, {}, asked_effect=0.02, cores=2, scheduled=[ran_ns, waited_ns])
    assert found["waited_for_cpu"] > 0.6
    assert "(1 % in cpu_s)" in notes[0]
    assert "is over 100 % in duration_s" in notes[0]
    assert any("other programs used the CPU" in note for note in notes)


def test_waiting_by_itself_is_not_contention():
    sleeping = rows([1.0] * 10, cpu=0.01, switches=1)
    found, notes = judge(sleeping, {}, asked_effect=0.02, cores=2, scheduled=[10**8, 10**8])
    assert found["waited_for_cpu"] == pytest.approx(0.01)
    assert notes == []


def test_a_kernel_that_does_not_count_waiting_leaves_it_out():
    found, notes = judge(rows([1.0] * 10, cpu=0.3), {}, asked_effect=0.02, cores=2, scheduled=[])
    assert "waited_for_cpu" not in found
    assert notes == []


def test_a_busy_machine_is_mentioned():
    machine = {"steal_fraction": 0.1, "cpu_pressure": 0.5, "load1": 3.0}
    _, notes = judge(rows([1.0]), machine, asked_effect=0.02, cores=2)
    assert len(notes) == 3


def test_a_trial_without_a_good_iteration_is_not_judged():
    assert judge([{"error": "x"}], {"load1": 9.0}, asked_effect=0.02, cores=2) == ({"load1": 9.0}, [])
    assert judge(rows([0.0]), {}, asked_effect=0.02, cores=2)[0]["cpu_over_wall"] is None
