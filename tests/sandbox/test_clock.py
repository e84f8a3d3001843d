"""The library that moves the calendar: what programs see of it, and what they must not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proctor.sandbox.programs import AHEAD_S, clock_library

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = clock_library(tmp_path_factory.mktemp("clock"))
    assert found is not None
    return found


def ahead(library: Path, *words: str) -> str:
    environment = {**os.environ, "LD_PRELOAD": str(library), "TZ": "UTC"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert "cannot be preloaded" not in done.stderr
    return done.stdout.strip()


def is_ahead(seconds: float) -> bool:
    return abs(seconds - time.time() - AHEAD_S) < 600


def test_it_is_built_once_and_not_trusted_when_others_could_have_written_it(tmp_path: Path):
    first = clock_library(tmp_path)
    assert first is not None
    made = first.stat().st_mtime_ns
    assert clock_library(tmp_path) == first
    assert first.stat().st_mtime_ns == made
    first.chmod(0o777)
    assert clock_library(tmp_path) == first
    assert first.stat().st_mode & 0o022 == 0


def test_without_a_compiler_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert clock_library(tmp_path) is None


def test_a_compiler_that_fails_makes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "cc").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert clock_library(tmp_path / "cache") is None


def test_it_needs_no_library_of_its_own(library: Path):
    if not shutil.which("readelf"):
        pytest.skip("needs readelf")
    shown = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert "NEEDED" not in shown


def test_shells_and_tools_live_in_the_later_year(library: Path):
    assert is_ahead(int(ahead(library, "date", "+%s")))
    assert is_ahead(int(ahead(library, "bash", "-c", "echo $EPOCHSECONDS")))


PROBE = """
import json, os, queue, sys, threading, time
found = {"time": time.time(), "clock": time.clock_gettime(time.CLOCK_REALTIME), "boot": time.monotonic()}
path = sys.argv[1]
open(path, "w").close()
found["made"] = os.stat(path).st_mtime - time.time()
with open(path) as file:
    found["open"] = os.fstat(file.fileno()).st_mtime - time.time()
os.utime(path, (time.time(), time.time() + 50))
found["touched"] = os.lstat(path).st_mtime - time.time()
began = time.monotonic()
try:
    queue.Queue().get(timeout=0.05)
except queue.Empty:
    pass
condition = threading.Condition()
with condition:
    condition.wait(0.05)
time.sleep(0.01)
found["waited"] = time.monotonic() - began
print(json.dumps(found))
"""


def test_files_made_now_are_new_and_waits_are_as_long_as_ever(library: Path, tmp_path: Path):
    found = json.loads(ahead(library, sys.executable, "-c", PROBE, str(tmp_path / "file")))
    assert is_ahead(found["time"])
    assert is_ahead(found["clock"])
    assert abs(found["boot"] - time.monotonic()) < 600
    assert abs(found["made"]) < 60
    assert abs(found["open"]) < 60
    assert abs(found["touched"] - 50) < 30
    assert 0.05 <= found["waited"] < 30


WAITS = r"""
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <utime.h>
static struct timespec soon(clockid_t clock) {
    struct timespec t; clock_gettime(clock, &t); t.tv_nsec += 20000000;
    if (t.tv_nsec >= 1000000000) { t.tv_nsec -= 1000000000; t.tv_sec++; }
    return t;
}
int main(int argc, char **argv) {
    struct timespec t = soon(CLOCK_REALTIME);
    sem_t s; sem_init(&s, 0, 0);
    printf("%d", sem_timedwait(&s, &t) == -1 && errno == ETIMEDOUT);
    pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER, n = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t c = PTHREAD_COND_INITIALIZER, d;
    pthread_condattr_t attr; pthread_condattr_init(&attr); pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&d, &attr);
    pthread_mutex_lock(&m); pthread_mutex_lock(&n);
    t = soon(CLOCK_REALTIME); printf("%d", pthread_cond_timedwait(&c, &m, &t) == ETIMEDOUT);
    t = soon(CLOCK_MONOTONIC); printf("%d", pthread_cond_timedwait(&d, &m, &t) == ETIMEDOUT);
    t = soon(CLOCK_REALTIME); printf("%d", pthread_mutex_timedlock(&n, &t) == ETIMEDOUT);
    t = soon(CLOCK_REALTIME); printf("%d", clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, 0) == 0);
    struct stat found; struct timeval now; gettimeofday(&now, 0);
    struct utimbuf old = {now.tv_sec, now.tv_sec - 100};
    printf("%d", utime(argv[1], &old) == 0 && stat(argv[1], &found) == 0 && found.st_mtime == old.modtime);
    struct timeval both[2] = {now, now};
    printf("%d", utimes(argv[1], both) == 0 && lstat(argv[1], &found) == 0 && found.st_mtime == now.tv_sec);
    timespec_get(&t, TIME_UTC); printf("%d\n", t.tv_sec - time(0) <= 1 && time(0) - t.tv_sec <= 1);
    return argc != 2;
}
"""


def test_deadlines_of_the_moved_calendar_come_when_they_should(library: Path, tmp_path: Path):
    source, program = tmp_path / "waits.c", tmp_path / "waits"
    source.write_text(WAITS)
    subprocess.run(["cc", "-pthread", "-o", program, source], check=True, capture_output=True)
    (tmp_path / "file").touch()
    assert ahead(library, str(program), str(tmp_path / "file")) == "11111111"
