"""Who owns what: names, locks, and what is left alone when nothing can tell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager

import pytest

from proctor import owner

HOLD = """
import sys
from pathlib import Path
from proctor import owner
print(owner.hold(Path(sys.argv[1])), owner.owner_name(), flush=True)
sys.stdin.read()
"""
ELSEWHERE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


@contextmanager
def holder(lock, *before: str):
    """Another process that holds a lock, killed at the end; its name."""
    command = [*before, sys.executable, "-c", HOLD, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        held, name = process.stdout.readline().split()
        assert held == "True"
        yield name
        process.kill()
        process.stdout.read()  # until every process that had it is gone


def test_a_lock_is_held_as_long_as_its_process_lives_however_it_ends(tmp_path):
    lock = tmp_path / "a"
    with holder(lock):
        assert owner.is_held(lock)
        assert not owner.hold(lock)
    assert owner.is_held(lock) is False
    assert owner.hold(lock)
    owner.release(lock, remove=True)
    assert not lock.exists()


def test_a_lock_held_twice_is_let_go_of_twice_and_a_folder_is_one_too(tmp_path):
    assert owner.hold(tmp_path)
    assert owner.hold(tmp_path)
    owner.release(tmp_path)
    assert owner.is_held(tmp_path)
    owner.release(tmp_path)
    assert not owner.is_held(tmp_path)
    owner.release(tmp_path)


def test_a_lock_whose_file_was_removed_is_made_again(tmp_path):
    lock = tmp_path / "a"
    assert owner.hold(lock)
    lock.unlink()
    assert owner.hold(lock)
    assert lock.exists()
    owner.release(lock, remove=True)


def test_a_forked_child_does_not_keep_the_locks_of_its_parent(tmp_path):
    lock = tmp_path / "a"
    program = """
import os, sys
from pathlib import Path
from proctor import owner
owner.hold(Path(sys.argv[1]))
if os.fork() == 0:
    os.close(1)
    sys.stdin.read()
    os._exit(0)
print("forked", flush=True)
os.kill(os.getpid(), 9)
"""
    command = [sys.executable, "-c", program, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read() == b"forked\n"
        process.wait()
        assert owner.is_held(lock) is False


def test_what_cannot_be_judged_is_taken_to_live(tmp_path):
    elsewhere = "12-34-00000000"
    assert owner.process_lives(elsewhere) is None
    assert owner.lives(elsewhere, tmp_path / "none"), "nothing is known of its processes, and it has no lock"
    (tmp_path / "free").touch()
    assert not owner.lives(elsewhere, tmp_path / "free")
    gone = f"{os.getpid()}-1-{owner.place_id()}"
    assert not owner.lives(gone, tmp_path / "none")
    assert owner.lives(owner.owner_name(), tmp_path / "none")
    assert owner.lives(owner.owner_name(), tmp_path / "free"), "its process can be seen"
    assert owner.lives("nonsense", tmp_path / "none")


def test_names_are_read_with_and_without_place_and_number():
    name = owner.owner_name()
    assert owner.owner_in(f"{name}-7") == owner.owner_in(name) == name
    assert owner.owner_in("12-34") == "12-34"
    assert owner.owner_in("12-34-5") == "12-34"
    assert owner.owner_in("probe-12") == ""


def test_only_one_may_do_what_only_one_may_do(tmp_path):
    with owner.held_if_free(tmp_path / "a") as first, owner.held_if_free(tmp_path / "a") as second:
        assert first
        assert not second
    with owner.held_if_free(tmp_path / "missing/a") as free:
        assert not free


@pytest.mark.needs("root")
def test_an_owner_in_another_process_namespace_is_known_by_its_lock(tmp_path):
    if not shutil.which("unshare"):
        pytest.skip("unshare is not installed")
    lock = tmp_path / "a"
    with holder(lock, *ELSEWHERE) as name:
        assert owner.process_lives(name) is None
        assert owner.lives(name, lock)
    assert not owner.lives(name, lock)
