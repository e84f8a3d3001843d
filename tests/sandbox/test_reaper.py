"""Who is alive, and what a dead owner leaves."""

# The test is about processes and has nothing else to do meanwhile.
# ruff: noqa: ASYNC220

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from proctor.errors import SandboxError
from proctor.owner import boot_id, owner_name
from proctor.processes import start_ticks
from proctor.sandbox import reaper

pytestmark = pytest.mark.anyio


def owner(folder, **fields):
    folder.mkdir(parents=True)
    known = {"pid": 1, "start_time": -1, "boot_id": boot_id(), "cgroups": []}
    (folder / reaper.OWNER_FILE).write_text(json.dumps(known | fields))
    return folder


def remover(state_dir):
    async def remove(name, folder):
        shutil.rmtree(state_dir / name)

    return remove


async def test_folders_of_the_living_stay_and_those_of_the_dead_go(tmp_path):
    alive = tmp_path / owner_name()
    alive.mkdir()
    reaper.write_owner(alive, keeper=os.getpid(), cgroups=["x"])
    dead = owner(tmp_path / "1-2")
    reused = owner(tmp_path / "3-4", pid=os.getpid(), start_time=1)
    rebooted = owner(tmp_path / "5-6", pid=os.getpid(), start_time=start_ticks(os.getpid()), boot_id="b")
    unwritten = tmp_path / "7-8"
    unwritten.mkdir()
    fresh = tmp_path / f"{os.getpid()}-{start_ticks(os.getpid())}x"
    fresh.mkdir()
    removed = await reaper.reap(tmp_path, remover(tmp_path))
    assert alive.exists()
    assert fresh.exists(), "a name that is not ours is left alone"
    assert not any(each.exists() for each in (dead, reused, rebooted, unwritten))
    assert len(removed) == 4


async def test_a_keeper_that_outlived_its_owner_is_killed(tmp_path):
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]) as process:
        began = start_ticks(process.pid)
        owner(tmp_path / "1-2", keeper=process.pid, keeper_start_time=began)
        removed = await reaper.reap(tmp_path, remover(tmp_path))
        assert process.wait(10) == -signal.SIGKILL
    assert f"process {process.pid}" in removed


async def test_a_process_id_that_passed_to_another_is_not_killed(tmp_path):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        owner(tmp_path / "1-2", keeper=process.pid, keeper_start_time=5)
        await reaper.reap(tmp_path, remover(tmp_path))
        assert process.poll() is None
        process.communicate(b"\n")


async def test_groups_are_removed_from_below_and_only_ours(tmp_path):
    (tmp_path / "cg/proctor-1/a/b").mkdir(parents=True)
    (tmp_path / "cg/precious/x").mkdir(parents=True)
    owner(tmp_path / "s/1-2", cgroups=[str(tmp_path / "cg/proctor-1"), str(tmp_path / "cg/precious")])
    removed = await reaper.reap(tmp_path / "s", remover(tmp_path / "s"))
    assert not (tmp_path / "cg/proctor-1").exists()
    assert (tmp_path / "cg/precious/x").exists()
    assert sum("control group" in line for line in removed) == 3


async def test_groups_of_dead_owners_go_even_without_their_folder(tmp_path):
    alive = tmp_path / f"proctor-{owner_name()}"
    dead, other = tmp_path / "proctor-1-2", tmp_path / "proctor-some-thing"
    for folder in (alive / "s", dead / "s", other):
        folder.mkdir(parents=True)
    assert len(reaper.sweep_cgroups([alive])) == 2
    assert alive.exists()
    assert other.exists()
    assert not dead.exists()


async def test_a_group_that_stays_full_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(reaper, "_EMPTY_S", 0.05)
    (tmp_path / "proctor-1").mkdir()
    (tmp_path / "proctor-1/cgroup.procs").write_text("")
    assert reaper.remove_cgroup(tmp_path / "proctor-1") == []


async def test_a_folder_that_cannot_be_removed_by_the_keeper_is_removed_here(tmp_path):
    folder = owner(tmp_path / "1-2")

    async def useless(name, parent):
        pass

    await reaper.reap(tmp_path, useless)
    assert not folder.exists()


async def test_a_folder_that_the_keeper_refuses_is_removed_here_and_the_others_too(tmp_path):
    folders = [owner(tmp_path / "1-2"), owner(tmp_path / "3-4")]

    async def refuse(name, parent):
        raise SandboxError(f"could not remove {name}")

    assert len(await reaper.reap(tmp_path, refuse)) == 2
    assert not any(each.exists() for each in folders)


async def test_a_folder_that_nobody_can_remove_is_told_of_and_stops_nothing(tmp_path, monkeypatch, caplog):
    owner(tmp_path / "1-2")

    async def refuse(name, parent):
        raise SandboxError(f"could not remove {name}")

    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    assert await reaper.reap(tmp_path, refuse) == ()
    assert "cannot be removed" in caplog.text


async def test_nothing_to_reap_is_no_error(tmp_path):
    assert await reaper.reap(tmp_path / "missing", remover(tmp_path)) == ()
    broken = tmp_path / "9-9"
    broken.mkdir()
    (broken / reaper.OWNER_FILE).write_text("[]")
    assert len(reaper.orphans(tmp_path)) == 1


def test_a_process_that_is_gone_has_no_start_time():
    assert start_ticks(2**22 + 1) is None
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert start_ticks(process.pid) is None, "a zombie is dead"
