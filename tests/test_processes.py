"""Trees of processes are found, ended and counted, whatever they do to get away."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from proctor import prctl, processes

DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sleep", ["sleep", "600"], {})
    os._exit(0)
os.wait()
print("ready", flush=True)
time.sleep(600)
"""


def eventually(check: Callable[[], bool], within_s: float = 20) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if check():
            return True
        time.sleep(0.005)
    return False


def start(*argv: str, **options) -> subprocess.Popen:
    return subprocess.Popen(argv, stdout=subprocess.PIPE, **options)


@pytest.fixture
def family():
    """A shell with two children, one of them in another session."""
    with start("sh", "-c", "setsid sleep 600 & sleep 600 & echo ready; wait") as process:
        assert process.stdout.readline() == b"ready\n"
        assert eventually(lambda: len(processes.descendants(process.pid)) == 2)
        yield process
        processes.kill_tree(process.pid)


def test_a_process_is_read_with_a_name_that_would_confuse_a_parser(tmp_path):
    odd = tmp_path / "a) R 1 (b"
    odd.symlink_to("/bin/sleep")
    with start(str(odd), "600") as process:
        assert eventually(lambda: processes.read_process(process.pid).state == "S")
        found = processes.read_process(process.pid)
        process.kill()
    assert found.parent == os.getpid()
    assert found.start_ticks > 0
    assert found.resident_bytes > 0


def test_a_process_that_is_not_there_is_none():
    assert processes.read_process(2**22 - 3) is None
    assert processes.kill_tree(2**22 - 3) == 0


def test_descendants_can_spare_a_branch(family):
    first = processes.descendants(family.pid)[0]
    assert len(processes.descendants(family.pid, spare={first.pid})) == 1


def test_the_whole_tree_ends_also_in_other_sessions(family):
    below = processes.descendants(family.pid)
    assert processes.kill_tree(family.pid) == 3
    family.wait()
    assert all(eventually(lambda each=each: _gone(each)) for each in below)


def test_a_session_leader_takes_along_members_that_were_orphaned():
    script = (
        "import subprocess, os, signal\n"
        "subprocess.Popen(['sh', '-c', 'sleep 600 & echo ready'])\n"
        "os.wait()\n"
        "signal.pause()"
    )
    with start(sys.executable, "-c", script, start_new_session=True) as process:
        assert process.stdout.readline() == b"ready\n"
        mates = lambda: [each for each in processes.all_processes() if each.session == process.pid]  # noqa: E731
        assert eventually(lambda: any(each.parent not in {process.pid, os.getpid()} for each in mates()))
        assert processes.kill_tree(process.pid) >= 2
        process.wait()
    assert eventually(lambda: all(each.gone for each in mates()))


def test_a_process_with_a_reused_id_is_not_signalled(family):
    real = processes.read_process(family.pid)
    other = processes.Process(real.pid, real.parent, real.session, "S", real.start_ticks - 1, 0.0, 0)
    assert not processes.send_signal(other, signal.SIGKILL)
    assert family.poll() is None


def test_marked_processes_are_found_whoever_their_parent_is(monkeypatch):
    monkeypatch.setenv("PROCTOR_TEST_MARK", str(os.getpid()))
    with start("sleep", "600", start_new_session=True) as process:
        entry = f"PROCTOR_TEST_MARK={os.getpid()}"
        assert eventually(lambda: [each.pid for each in processes.marked(entry)] == [process.pid])
        assert processes.kill_all(processes.marked(entry)) == 1
        assert process.wait() == -signal.SIGKILL
    assert processes.marked(entry) == []


SUBREAPER = f"""
import os, subprocess, sys
from proctor.prctl import become_subreaper
from proctor.processes import kill_below, collect, descendants
become_subreaper()
spared = subprocess.Popen(["sleep", "600"])
child = subprocess.Popen([sys.executable, "-c", {DAEMON!r}], stdout=subprocess.PIPE)
child.stdout.readline()
print(*kill_below(spare={{spared.pid}}), len(descendants(os.getpid())), collect(spare={{spared.pid}}))
print(*kill_below(), len(descendants(os.getpid())), collect())
"""


def test_a_subreaper_gets_hold_of_daemons_and_leaves_nothing():
    answer = subprocess.run([sys.executable, "-c", SUBREAPER], capture_output=True, text=True, check=True)
    assert answer.stdout.split("\n")[:2] == ["2 0 1 False", "1 0 0 False"]


ORPHAN = """
import os, signal, sys, time
from proctor.prctl import die_with_parent
read, write = os.pipe()
if os.fork() == 0:
    die_with_parent(signal.SIGKILL)
    print(os.getpid(), flush=True)
    os.write(write, b".")
    time.sleep(600)
os.read(read, 1)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_child_may_die_with_its_parent():
    answer = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True, check=False)
    child = int(answer.stdout)
    assert eventually(lambda: (found := processes.read_process(child)) is None or found.gone)


def test_a_refused_request_to_the_kernel_is_an_error():
    with pytest.raises(OSError, match="prctl"):
        prctl._prctl(-1, 0)


def test_usage_has_units():
    used = processes.from_rusage(resource.getrusage(resource.RUSAGE_SELF))
    assert used.cpu_s == used.user_s + used.system_s > 0
    assert used.peak_rss_bytes > 1_000_000


@pytest.mark.parametrize(
    ("status", "words"),
    [(0, "exit code 0"), (3 << 8, "exit code 3"), (9, "signal 9 (SIGKILL)"), (62, "signal 62 (unnamed)")],
)
def test_a_wait_status_is_put_into_words(status, words):
    assert processes.describe_status(status) == words


def _gone(process: processes.Process) -> bool:
    now = processes.read_process(process.pid)
    return now is None or now.start_ticks != process.start_ticks or now.gone


def test_the_limit_of_open_files_is_raised_as_far_as_it_goes():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        allowed = processes.allow_open_files()
        assert allowed == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert 256 < allowed <= 1 << 20
        assert processes.allow_open_files() == allowed
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
