"""Limits: which files are written, what is read back, and what is said about it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from proctor import owner
from proctor.errors import SandboxError
from proctor.sandbox.base import Limits
from proctor.sandbox.limits import Cgroups, Group, enforcement, find_cgroups, remove_parents, rlimit_fields

ALL = Limits(cpus=1.5, memory_bytes=1000, storage_bytes=5000, pids=10)


def tree(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def hierarchy_2(tmp_path, controllers="cpu memory pids io", own="/user/scope"):
    root = tree(tmp_path / "cg", cgroup__controllers="", cgroup__procs="")
    tree(root / own.lstrip("/"), cgroup__controllers=controllers, cgroup__procs=f"{os.getpid()}\n7\n")
    (tmp_path / "mounts").write_text(f"cgroup2 {root} cgroup2 rw 0 0\nproc /proc proc rw 0 0\n")
    (tmp_path / "own").write_text(f"0::{own}\n")
    return root / own.lstrip("/")


def test_a_delegated_group_of_version_2_gets_a_leaf_for_us_and_one_for_sandboxes(tmp_path):
    own = hierarchy_2(tmp_path)
    found = find_cgroups("proctor-x", mounts=tmp_path / "mounts", own=tmp_path / "own")
    assert found is not None
    assert found.version == 2
    assert found.parents == dict.fromkeys(("memory", "pids", "cpu"), own / "proctor-x")
    assert (own / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    assert (own / "proctor-x/cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    assert (own / "proctor-self/cgroup.procs").read_text() == "7", "the last one moved"


def test_what_is_not_delegated_is_named(tmp_path):
    hierarchy_2(tmp_path, controllers="memory pids")
    found = find_cgroups("proctor-x", mounts=tmp_path / "mounts", own=tmp_path / "own")
    assert found.missing == {"cpu": "not delegated"}
    assert enforcement(ALL, found)["cpus"] == "not enforced: not delegated"
    assert enforcement(ALL, found)["memory"] == "cgroup v2"


def test_no_controllers_or_no_mounts_mean_no_groups(tmp_path):
    hierarchy_2(tmp_path, controllers="")
    assert find_cgroups("proctor-x", mounts=tmp_path / "mounts", own=tmp_path / "own") is None
    assert find_cgroups("proctor-x", mounts=tmp_path / "gone", own=tmp_path / "own") is None


def test_version_1_takes_each_hierarchy_that_is_writable(tmp_path):
    for name in ("memory", "cpu,cpuacct"):
        (tmp_path / name / "here").mkdir(parents=True)
    (tmp_path / "mounts").write_text(
        f"cgroup {tmp_path}/memory cgroup rw,memory 0 0\n"
        f"cgroup {tmp_path}/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n"
    )
    (tmp_path / "own").write_text("3:memory:/here\n2:cpu,cpuacct:/here\n1:pids:/\n0::/\n")
    found = find_cgroups("proctor-x", mounts=tmp_path / "mounts", own=tmp_path / "own")
    assert found.version == 1
    assert set(found.parents) == {"memory", "cpu", "cpuacct"}
    assert "no control group hierarchy" in found.missing["pids"]
    group = found.create("s", ALL)
    assert Path(group.folders["memory"], "memory.limit_in_bytes").read_text() == "1000"
    assert Path(group.folders["cpu"], "cpu.cfs_quota_us").read_text() == "150000"
    (tmp_path / "own").write_text("3:memory:/missing\n")
    assert find_cgroups("proctor-x", mounts=tmp_path / "mounts", own=tmp_path / "own") is None


def test_version_2_limits_are_written_and_usage_is_read(tmp_path):
    parent = tree(tmp_path / "p")
    group = Cgroups(version=2, parents=dict.fromkeys(("memory", "pids", "cpu"), parent)).create("s", ALL)
    folder = parent / "s"
    assert (folder / "memory.max").read_text() == "1000"
    assert not (folder / "memory.swap.max").exists(), "a kernel without swap has no such file"
    assert (folder / "pids.max").read_text() == "14"
    assert (folder / "cpu.max").read_text() == "150000 100000"
    tree(
        folder,
        memory__peak="900\n",
        memory__events="low 0\noom 1\noom_kill 2\n",
        cpu__stat="usage_usec 5\nthrottled_usec 2500000\n",
        cgroup__procs="",
    )
    assert group.usage() == {
        "oom_kills": 2,
        "peak_memory_bytes": 900,
        "host_oom": False,
        "throttled_s": 2.5,
        "cpu_s": 5e-6,
    }
    (folder / "memory.events").write_text("oom 0\noom_kill 1\n")
    assert group.usage()["host_oom"] is True
    fds = group.open_procs()
    assert len(fds) == 1
    os.close(fds[0])


def test_version_1_usage_tells_the_host_s_need_from_the_task_s(tmp_path):
    folder = tree(
        tmp_path / "m",
        memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
        memory__max_usage_in_bytes="77\n",
        memory__failcnt="0\n",
        cpu__stat="nr_throttled 1\nthrottled_time 1500000000\n",
    )
    group = Group(version=1, folders={"memory": str(folder), "cpu": str(folder)})
    found = group.usage()
    assert found.pop("memory_free_bytes") == group.memory_free_bytes
    assert found == {"oom_kills": 3, "peak_memory_bytes": 77, "host_oom": True, "throttled_s": 1.5}
    (tmp_path / "memory.limit_in_bytes").write_text("150\n")
    assert group.usage()["memory_free_bytes"] == 150, "a group around it allows no more"
    (folder / "memory.failcnt").write_text("9\n")
    assert group.usage()["host_oom"] is False
    assert Group(version=1, folders={}).usage() == {"oom_kills": 0, "host_oom": False}


def test_a_limit_that_cannot_be_written_is_an_error_and_leaves_no_group(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SandboxError, match="control groups"):
        Cgroups(version=1, parents={"memory": tmp_path / "file"}).create("s", ALL)


def test_without_groups_rlimits_stand_in_and_it_is_said():
    said = enforcement(ALL, None)
    assert said["cpus"] == "not enforced: no writable control groups"
    assert said["memory"].startswith("rlimit")
    assert said["pids"].startswith("rlimit")
    assert rlimit_fields(ALL, ()) == ["o65536", "p10", "m1000", "z5000"]
    unlimited = Limits(pids=None)
    assert set(enforcement(unlimited, None)) == {"network"}
    assert rlimit_fields(unlimited, ()) == ["o65536"]


@pytest.mark.needs("root")
def test_real_groups_are_made_and_removed():
    found = find_cgroups(f"proctor-test-{os.getpid()}")
    if found is None:
        pytest.skip("no writable control groups")
    group = found.create("s", Limits(memory_bytes=1 << 26, pids=5, cpus=0.5))
    assert group.usage()["oom_kills"] == 0
    assert group.remove()
    remove_parents(found)
    assert not any(parent.exists() for parent in found.parents.values())


def test_version_1_counts_cpu_time_in_a_hierarchy_of_its_own(tmp_path):
    folder = tree(tmp_path / "c", cpuacct__usage="6250000000\n")
    group = Group(version=1, folders={"cpuacct": str(folder)})
    assert group.usage()["cpu_s"] == 6.25
    (folder / "cpuacct.usage").unlink()
    assert group.cpu_s() is None, "no number where none is counted"
    assert "cpu_s" not in group.usage()


def test_version_2_counts_cpu_time_whether_or_not_a_limit_on_it_can_be_set(tmp_path):
    folder = tree(tmp_path / "m", cpu__stat="usage_usec 6000000\nuser_usec 5\n")
    assert Group(version=2, folders={"memory": str(folder)}).cpu_s() == 6.0
    assert Group(version=2, folders={}).cpu_s() is None


def test_groups_that_were_removed_from_outside_are_made_again(tmp_path):
    own = hierarchy_2(tmp_path)
    found = find_cgroups("proctor-x", mounts=tmp_path / "mounts", own=tmp_path / "own")
    shutil.rmtree(own / "proctor-x")
    group = found.create("s", ALL)
    assert Path(group.folders["memory"], "memory.max").read_text() == "1000"
    assert (own / "proctor-x/cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    assert owner.is_held(own / "proctor-x")
    remove_parents(found)
    assert not owner.is_held(own / "proctor-x")


def test_a_group_that_vanishes_before_a_process_enters_it_is_an_error(tmp_path):
    made = tree(tmp_path / "a", cgroup__procs="")
    group = Group(version=1, folders={"memory": str(made), "pids": str(tmp_path / "gone")})
    with pytest.raises(SandboxError, match="control groups"):
        group.open_procs()


@pytest.mark.needs("root")
def test_real_groups_that_were_removed_from_outside_are_made_again():
    found = find_cgroups(f"proctor-test-{os.getpid()}")
    if found is None:
        pytest.skip("no writable control groups")
    for parent in set(found.parents.values()):
        parent.rmdir()
    group = found.create("s", Limits(memory_bytes=1 << 26, pids=5, cpus=0.5))
    assert group.remove()
    remove_parents(found)
