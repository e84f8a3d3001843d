"""Each built-in instrument by itself, in this process."""

from __future__ import annotations

import errno
import json
import mmap
import os
import pstats
import subprocess

import psutil as psutil_library
import pytest

from proctor.errors import UsageError
from proctor.instruments import counters, psutil
from proctor.instruments.cachegrind import Cachegrind
from proctor.instruments.counters import Counters
from proctor.instruments.cprofile import CProfile
from proctor.instruments.memory import Memray, Tracemalloc
from proctor.instruments.psutil import Psutil
from proctor.instruments.pyinstrument import Pyinstrument


def busy(count: int = 20_000) -> list[int]:
    return sorted(range(count, 0, -1))


def test_a_profile_can_be_read_by_pstats_and_names_the_work(tmp_path):
    made = CProfile(top=10)
    made.open(tmp_path / "out")
    for _ in range(2):
        with made:
            busy()
    summary = made.close()
    stats = pstats.Stats(str(tmp_path / "out/profile.prof"))
    assert any(function == "busy" for _, _, function in stats.stats)
    top = json.loads((tmp_path / "out/top.json").read_text())["functions"]
    (row,) = [each for each in top if each["function"] == "busy"]
    assert row["calls"] == 2
    assert summary["functions"] == top[:5]
    assert "busy" in (tmp_path / "out/top.txt").read_text()


def test_tracemalloc_sees_what_an_iteration_took_and_kept(tmp_path):
    made = Tracemalloc()
    made.open(tmp_path / "out")
    with made:
        kept = [bytearray(100_000)]
        bytearray(1_000_000)
    metrics = made.metrics()
    assert metrics["peak_bytes"] > 1_000_000
    assert 100_000 <= metrics["kept_bytes"] < 300_000
    made.close()
    lines = json.loads((tmp_path / "out/top.json").read_text())["lines"]
    assert lines[0]["file"] == __file__
    assert kept


def test_tracemalloc_without_an_iteration_leaves_nothing(tmp_path):
    made = Tracemalloc()
    made.open(tmp_path / "out")
    assert made.close() == {}
    assert not (tmp_path / "out").exists()


@pytest.mark.needs("memray")
def test_memray_keeps_the_last_iteration(tmp_path):
    made = Memray(html=False)
    made.open(tmp_path / "out")
    assert made.close() == {}
    for size in (1000, 3_000_000):
        with made:
            kept = bytearray(size)
    assert made.metrics()["peak_bytes"] > 3_000_000
    top = made.close()["at_peak"]
    assert top[0]["size_bytes"] > 3_000_000
    assert "test_each.py" in top[0]["stack"][0]
    assert not (tmp_path / "out/flamegraph.html").exists()
    assert kept


@pytest.mark.needs("pyinstrument")
def test_pyinstrument_draws_a_tree_over_all_iterations(tmp_path):
    made = Pyinstrument(interval_ms=0.2)
    made.open(tmp_path / "out")
    assert made.close() == {"samples": 0}
    for _ in range(2):
        with made:
            for _ in range(100):
                busy()
    assert made.close()["samples"] > 5
    assert "busy" in (tmp_path / "out/tree.txt").read_text()
    page = (tmp_path / "out/flame.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_counters_count_faults_of_new_memory(tmp_path):
    made = Counters()
    made.open(tmp_path)
    with made:
        kept = mmap.mmap(-1, 20_000_000)  # new pages, whatever the heap has to spare
        kept.write(bytes(20_000_000))
    assert made.metrics()["page_faults"] > 1000
    summary = made.close()
    assert set(summary["events"]) | set(summary["refused"]) >= {"instructions", "page_faults"}
    assert kept


def test_counters_fall_back_to_what_every_kernel_has(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, "no")

    monkeypatch.setattr(counters, "open_event", refuse)
    made = Counters()
    made.open(tmp_path)
    with made:
        kept = mmap.mmap(-1, 20_000_000)  # new pages, whatever the heap has to spare
        kept.write(bytes(20_000_000))
    assert made.metrics()["page_faults"] > 1000
    assert made.close()["events"] == ["getrusage"]
    assert set(made.close()["refused"].values()) == {"EPERM"}
    assert kept


def test_an_unknown_machine_has_no_counters(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "pdp11")
    with pytest.raises(OSError, match="no perf_event_open"):
        counters.open_event(1, 2)


def test_a_shared_counter_is_scaled_up():
    read, write = os.pipe()
    os.write(write, (100).to_bytes(8, "little") + (80).to_bytes(8, "little") + (40).to_bytes(8, "little"))
    assert counters.read_event(read) == 200
    os.close(read)
    os.close(write)


def test_a_series_covers_a_process_and_its_children(tmp_path, monkeypatch):
    monkeypatch.setattr(psutil, "FAMILY_EVERY_S", 0.0)
    made = Psutil(interval_ms=50)
    made.open(tmp_path / "out")
    with subprocess.Popen(["sh", "-c", "sleep 600 & echo ready; wait"], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        made.sample(process.pid)
        made.sample(process.pid)
        for each in psutil_library.Process(process.pid).children():
            each.kill()
    made.sample(process.pid)
    summary = made.close()
    assert summary["samples"] == 2
    assert summary["rss_bytes_peak"] > 0
    rows = json.loads((tmp_path / "out/series.json").read_text())["samples"]
    assert rows[0]["processes"] == 2


def test_a_series_is_bounded_and_may_be_empty(tmp_path):
    made = Psutil(max_samples=1)
    made.open(tmp_path / "out")
    assert made.close()["samples"] == 0
    for _ in range(3):
        made.sample(os.getpid())
    assert (made.close()["samples"], made.close()["dropped_samples"]) == (1, 2)


def test_a_zombie_is_not_measured(tmp_path):
    process = subprocess.Popen(["true"])
    zombie = psutil_library.Process(process.pid)
    while zombie.status() != psutil_library.STATUS_ZOMBIE:
        os.sched_yield()
    made = Psutil(children=False)
    made.open(tmp_path)
    made.sample(process.pid)
    process.wait()
    assert made.close()["samples"] == 0


def test_io_that_may_not_be_read_counts_as_none(monkeypatch):
    def refuse(*_):
        raise psutil_library.AccessDenied

    monkeypatch.setattr(psutil_library.Process, "io_counters", refuse)
    assert psutil._read(psutil_library.Process())["read_bytes"] == 0


def test_cachegrind_divides_the_difference_by_the_calls(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    made = Cachegrind(calls=4)
    made.open(tmp_path)
    assert made.runs() == (1, 5)
    command = made.wrap(["python", "x.py"], 5)
    assert command[:3] == ["setarch", "-R", "valgrind"]
    assert command[-2:] == ["python", "x.py"]
    assert f"--cachegrind-out-file={tmp_path}/cachegrind-5.out" in command
    assert made.close() == {"error": "valgrind wrote no counts"}
    (tmp_path / "cachegrind-1.out").write_text("events: Ir\nsummary: 1000\n")
    (tmp_path / "cachegrind-5.out").write_text("events: Ir\nsummary: 1400\n")
    assert made.close()["instructions_per_call"] == 100
    (tmp_path / "cachegrind-5.out").write_text("truncated")
    assert "error" in made.close()


def test_cachegrind_without_valgrind_says_so(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(UsageError, match="needs the program valgrind"):
        Cachegrind()
