"""What the kernel tells of a container, read from made-up and real files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proctor.errors import SandboxError
from proctor.sandbox.base import Limits
from proctor.sandbox.container import usage
from proctor.sandbox.limits import Group

INSIDE = """\
1 0 0:99 / / rw - overlay overlay rw,lowerdir=l/A,upperdir=/store/overlay/id/diff,workdir=/w
2 1 254:0 /run/userdata/hosts /etc/hosts rw - ext4 /dev/vda rw
3 1 254:9 /elsewhere /etc/hostname rw - ext4 /dev/vdb rw
4 1 0:20 / /proc rw - proc proc rw
"""
HERE = "1 0 254:0 / / rw - ext4 /dev/vda rw\n"


def test_changes_are_an_upper_folder_and_the_files_that_were_given():
    assert usage.changes(INSIDE, HERE) == (Path("/store/overlay/id/diff"), Path("/run/userdata/hosts"))
    assert usage.changes(INSIDE.replace("upperdir=/store", "upperdir=store"), HERE) == ()
    assert usage.changes("nonsense", HERE) == ()
    assert usage.changes("", HERE) == ()


def group(tmp_path, version, files):
    folder = tmp_path / f"v{version}"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return Group(version=version, folders=dict.fromkeys(("memory", "pids", "cpu", "cpuacct"), str(folder)))


def test_limits_hold_when_the_kernel_says_so(tmp_path):
    limits = Limits(cpus=1, memory_bytes=1, pids=1, storage_bytes=1)
    held = {"memory.limit_in_bytes": "4096", "pids.max": "9", "cpu.cfs_quota_us": "100000"}
    one = usage.enforcement(limits, group(tmp_path, 1, held), network="n", storage=True)
    assert [one[name] for name in ("cpus", "memory", "pids")] == ["cgroup v1"] * 3
    assert one["storage"].startswith("watched")
    free = {"memory.max": "max", "pids.max": "max", "cpu.max": "max 100000"}
    two = usage.enforcement(limits, group(tmp_path, 2, free), network="n", storage=False)
    assert two["cpus"].startswith("not enforced")
    assert two["memory"].startswith("rlimit")
    assert two["storage"].startswith("not enforced as a whole")
    assert usage.enforcement(Limits(pids=None), None, network="n", storage=False) == {"network": "n"}


def test_a_kill_at_the_limit_of_memory_and_swap_is_not_the_host_s(tmp_path):
    files = {"memory.oom_control": "oom_kill 1\n", "memory.failcnt": "0", "memory.limit_in_bytes": "64000000"}
    made = group(
        tmp_path, 1, {**files, "memory.max_usage_in_bytes": "9000000", "cpuacct.usage": "2500000000"}
    )
    assert usage.used(made)["host_oom"] is True
    assert usage.used(made)["cpu_s"] == 2.5
    Path(made.folders["memory"], "memory.max_usage_in_bytes").write_text("63990000")
    assert usage.used(made)["host_oom"] is False
    assert usage.used(group(tmp_path, 2, {"cpu.stat": "usage_usec 1500000\n"}))["cpu_s"] == 1.5


def fake_proc(tmp_path, mounts, cgroup):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/7").mkdir()
    (tmp_path / "proc/self/mounts").write_text(mounts)
    (tmp_path / "proc/7/cgroup").write_text(cgroup)
    (tmp_path / "proc/self/cgroup").write_text("4:memory:/own\n0::/own\n")
    return tmp_path / "proc"


def test_groups_are_found_in_either_hierarchy_but_never_the_root(tmp_path):
    memory, unified = tmp_path / "memory", tmp_path / "unified"
    (memory / "a").mkdir(parents=True)
    (unified / "b").mkdir(parents=True)
    mounts = f"cgroup {memory} cgroup rw,memory 0 0\ncgroup2 {unified} cgroup2 rw 0 0\n"
    proc = fake_proc(tmp_path, mounts, "4:memory:/a\n3:pids:/\n0::/b\n")
    assert usage.group_of(7, proc) == Group(version=1, folders={"memory": str(memory / "a")})
    (unified / "b/memory.current").write_text("0")
    found = usage.group_of(7, proc)
    assert found
    assert found.version == 2
    assert usage.group_of(8, proc) is None
    (proc / "self/cgroup").write_text((proc / "7/cgroup").read_text())
    assert usage.group_of(7, proc) is None, "what is shared with us says nothing of the container"


@pytest.mark.anyio
async def test_disk_use_counts_bytes_and_inodes(tmp_path):
    (tmp_path / "tree/deep").mkdir(parents=True)
    (tmp_path / "tree/deep/f").write_bytes(b"x" * 100_000)
    (tmp_path / "g").write_bytes(b"x" * 100_000)
    used, inodes = await usage.disk_usage([tmp_path / "tree", tmp_path / "g"], ())
    assert 200_000 <= used < 300_000
    assert inodes == 3, "what is in the folder, and the file"
    with pytest.raises(SandboxError, match="cannot measure"):
        await usage.disk_usage([tmp_path / "none"], ("false",))
    assert await usage.find_changes(os.getpid(), ("cat", "/dev/null", "#")) == ()
    assert await usage.find_changes(2**22 + 1, ()) == ()
    assert await usage.find_changes(2**22 + 1, ("/no/such/program",)) == ()
