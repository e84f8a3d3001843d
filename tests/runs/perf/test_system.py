"""The machine's time series, from a /proc of our own and from the real one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proctor.runs.perf import system
from proctor.runs.perf.system import MAX_SAMPLES, SystemSampler


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    write_proc(tmp_path, busy=100, idle=100, read=10, written=20)
    (tmp_path / "meminfo").write_text("MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\n")
    return tmp_path


def write_proc(folder: Path, *, busy: int, idle: int, read: int, written: int) -> None:
    (folder / "stat").write_text(f"cpu {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 2 3\n")
    lines = [
        f"8 0 sda 1 0 {read} 0 1 0 {written} 0 0 0 0",
        "8 1 sda1 1 0 999999 0 1 0 999999 0 0 0 0",
        "7 0 loop0 1 0 999999 0 1 0 999999 0 0 0 0",
        "259 1 nvme0n1p2 1 0 999999 0 1 0 999999 0 0 0 0",
    ]
    (folder / "diskstats").write_text("\n".join(lines) + "\n")


def test_a_sample_tells_what_happened_since_the_one_before(proc: Path):
    clock = Clock()
    sampler = SystemSampler(proc=proc, clock=clock)
    clock.now += 2
    write_proc(proc, busy=175, idle=125, read=14, written=26)
    sampler.sample()
    row = sampler.samples[0]
    assert row["at_s"] == 2.0
    assert row["cpu_percent"] == 75.0
    assert row["memory_used_bytes"] == 600 * 1024
    assert (row["read_bytes"], row["write_bytes"]) == (4 * 512, 6 * 512)
    assert row["harness_rss_bytes"] == 0


def test_samples_are_taken_when_they_are_due(proc: Path):
    clock = Clock()
    sampler = SystemSampler(proc=proc, clock=clock)
    sampler.tick()
    sampler.tick()
    assert len(sampler.samples) == 1
    assert sampler.wait_s() == pytest.approx(system.INTERVAL_S)
    clock.now += system.INTERVAL_S + 0.001
    sampler.tick()
    assert len(sampler.samples) == 2


def test_a_long_run_is_sampled_less_often_and_to_its_end(proc: Path):
    clock = Clock()
    sampler = SystemSampler(proc=proc, clock=clock)
    for _ in range(3 * MAX_SAMPLES):
        clock.now += 0.05
        sampler.tick()
    assert len(sampler.samples) < MAX_SAMPLES
    assert sampler.interval_s > system.INTERVAL_S
    assert sampler.samples[-1]["at_s"] == pytest.approx(3 * MAX_SAMPLES * 0.05, rel=0.02)


def test_the_process_of_the_harness_is_followed():
    sampler = SystemSampler()
    sampler.pid = os.getpid()
    sampler.sample()
    sampler.sample()
    assert sampler.samples[-1]["harness_rss_bytes"] > 1_000_000
    assert sampler.to_mapping()["cpus"] >= 1


def test_a_machine_without_these_files_gives_zeros(tmp_path: Path):
    sampler = SystemSampler(proc=tmp_path)
    sampler.sample()
    assert sampler.samples[0]["cpu_percent"] == 0.0
    assert sampler.samples[0]["memory_used_bytes"] == 0
