"""The watch over disk use, with a disk and sandboxes of our own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from proctor.errors import SandboxError
from proctor.sandbox import storage
from proctor.sandbox.storage import StorageWatch, Watched

pytestmark = pytest.mark.anyio


class Tree:
    def __init__(self, used=0, inodes=0):
        self.used, self.inodes, self.measured = used, inodes, 0
        self.reasons, self.blamed = [], []
        self.ended = asyncio.Event()

    async def measure(self):
        self.measured += 1
        return self.used, self.inodes

    async def end(self, reason, by_host):
        self.reasons.append(reason)
        self.blamed.append("host" if by_host else "own limit")
        self.ended.set()

    def watched(self, limit_bytes=None):
        return Watched(limit_bytes=limit_bytes, measure=self.measure, end=self.end)


async def test_who_is_over_the_limit_is_ended_and_others_are_not(tmp_path):
    watch = StorageWatch(tmp_path, floor_bytes=0)
    small, large, files, free = Tree(10), Tree(2000), Tree(10, inodes=5), Tree(10**9)
    for name, tree, limit in (("s", small, 100), ("l", large, 1000), ("f", files, 10_000), ("u", free, None)):
        watch.watched[name] = tree.watched(limit)
    await watch.look()
    assert (small.reasons, free.reasons) == ([], [])
    assert large.reasons == ["storage limit of 1000 bytes exceeded"]
    assert large.blamed == ["own limit"]
    assert len(files.reasons) == 1, "files count even when empty"


async def test_a_nearly_full_disk_ends_the_largest(tmp_path):
    watch = StorageWatch(tmp_path, floor_bytes=1 << 62, floor_share=2)
    one, two = Tree(storage.WORTH_BYTES), Tree(storage.WORTH_BYTES + 1)
    watch.watched = {"1": one.watched(), "2": two.watched()}
    await watch.look()
    assert one.reasons == []
    assert two.reasons == ["the disk of the host is nearly full"]
    assert two.blamed == ["host"]


@pytest.mark.parametrize(("share", "blamed"), [(0.6, "own limit"), (0.4, "host")])
async def test_who_wrote_most_of_what_filled_the_disk_is_to_blame_itself(
    tmp_path, monkeypatch, share, blamed
):
    room = [(1 << 40, 1 << 41)]
    monkeypatch.setattr(StorageWatch, "_room", lambda self: tuple(room))
    watch = StorageWatch(tmp_path)
    tree = Tree()
    watch.add("1", tree.watched())
    room[0] = (1 << 29, 1 << 41)
    tree.used = int(share * (1 << 40))
    await watch.look()
    watch.remove("1")
    assert tree.blamed == [blamed]
    assert ("is its own" in tree.reasons[0]) == (blamed == "own limit")


async def test_a_nearly_full_disk_ends_nobody_who_has_not_filled_it(tmp_path):
    watch = StorageWatch(tmp_path, floor_bytes=1 << 62, floor_share=2)
    one, two = Tree(10), Tree(storage.WORTH_BYTES - 1)
    watch.watched = {"1": one.watched(), "2": two.watched()}
    await watch.look()
    assert one.reasons == two.reasons == []


async def test_trees_are_measured_only_after_the_disk_shrank(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "PERIOD_S", 0.001)
    free = [1 << 40]
    looked = asyncio.Event()

    def free_bytes(self):
        looked.set()
        return free[0]

    monkeypatch.setattr(StorageWatch, "_free_bytes", free_bytes)
    watch = StorageWatch(Path("/"), floor_bytes=0)
    tree = Tree(5000)
    watch.add("t", tree.watched(1 << 20))
    for _ in range(3):
        looked.clear()
        await asyncio.wait_for(looked.wait(), 10)
    assert tree.measured == 0
    free[0] -= storage.GRAIN_BYTES + 1
    async with asyncio.timeout(10):
        while not tree.measured:
            looked.clear()
            await looked.wait()
    watch.remove("t")
    watch.remove("t")
    assert watch._task is None


async def test_a_disk_that_stays_nearly_full_is_not_measured_again_and_again(monkeypatch):
    monkeypatch.setattr(storage, "PERIOD_S", 0.001)
    free, looked = [1 << 20], asyncio.Event()

    def free_bytes(self):
        looked.set()
        return free[0]

    monkeypatch.setattr(StorageWatch, "_free_bytes", free_bytes)
    watch = StorageWatch(Path("/"), floor_bytes=1 << 62, floor_share=2)
    tree = Tree(5000)
    watch.add("t", tree.watched())
    for _ in range(5):
        looked.clear()
        await asyncio.wait_for(looked.wait(), 10)
    assert tree.measured == 0
    free[0] -= 1
    for _ in range(5):
        looked.clear()
        await asyncio.wait_for(looked.wait(), 10)
    assert tree.measured == 1
    watch.remove("t")


async def test_trees_are_measured_the_more_often_the_smaller_the_limit(tmp_path):
    watch = StorageWatch(tmp_path, floor_bytes=0)
    assert watch.grain_bytes > 1 << 60, "without a limit only the floor matters"
    watch.watched["large"] = Tree().watched(8 << 30)
    assert watch.grain_bytes == 1 << 30
    watch.watched["small"] = Tree().watched(1 << 20)
    assert watch.grain_bytes == storage.GRAIN_BYTES


async def test_a_sandbox_that_ended_meanwhile_does_not_end_the_watch(tmp_path):
    class Gone(Tree):
        async def measure(self):
            raise SandboxError("gone")

    watch = StorageWatch(tmp_path, floor_bytes=0)
    large = Tree(2000)
    watch.watched = {"gone": Gone().watched(1), "large": large.watched(1000)}
    await watch.look()
    assert len(large.reasons) == 1


async def test_a_sandbox_that_takes_for_ever_to_measure_delays_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "ROUND_S", 0.01, raising=False)

    class Endless(Tree):
        async def measure(self):
            self.measured += 1
            await asyncio.Event().wait()

    watch = StorageWatch(tmp_path, floor_bytes=0)
    endless, large = Endless(), Tree(2000)
    watch.watched = {"endless": endless.watched(1), "large": large.watched(1000)}
    async with asyncio.timeout(10):
        await watch.look()
        await watch.look()
    assert len(large.reasons) == 2
    assert endless.measured == 1, "one measurement at a time"
    measuring = watch.watched["endless"].measuring
    watch.remove("endless")
    await asyncio.wait([measuring], timeout=10)
    assert measuring.cancelled()


@pytest.mark.parametrize("full", [False, True])
async def test_a_sandbox_that_is_stopped_while_it_is_being_ended_does_not_end_the_watch(monkeypatch, full):
    monkeypatch.setattr(storage, "PERIOD_S", 0.001)
    free = [1 << 40]
    monkeypatch.setattr(StorageWatch, "_free_bytes", lambda self: free[0])

    class Stopping(Tree):
        async def end(self, reason, by_host):
            await super().end(reason, by_host)
            raise SandboxError("sandbox s is not running")

    watch = StorageWatch(Path("/"), floor_bytes=1 << 62 if full else 0, floor_share=2)
    stopping, other = Stopping(storage.WORTH_BYTES * 2), Tree(0)
    watch.add("stopping", stopping.watched(None if full else 1000))
    watch.add("other", other.watched(1000))
    for _ in range(2):
        stopping.ended.clear()
        free[0] -= storage.GRAIN_BYTES + 1
        await asyncio.wait_for(stopping.ended.wait(), 10)
    assert other.measured >= 2
    watch.remove("stopping")
    watch.remove("other")


async def test_a_limited_sandbox_is_measured_now_and_then_though_the_disk_does_not_shrink(monkeypatch):
    monkeypatch.setattr(storage, "PERIOD_S", 0.001)
    monkeypatch.setattr(storage, "AGAIN_S", 0.01, raising=False)
    monkeypatch.setattr(StorageWatch, "_free_bytes", lambda self: 1 << 40)
    watch = StorageWatch(Path("/"), floor_bytes=0)
    tree = Tree(5000)
    watch.add("t", tree.watched(1000))
    await asyncio.wait_for(tree.ended.wait(), 10)
    watch.remove("t")


@pytest.mark.parametrize(
    ("left", "whole", "full"),
    [
        (2 << 30, 1 << 40, False),
        (900 << 20, 1 << 40, True),
        (900 << 20, 8 << 30, False),
        (200 << 20, 8 << 30, True),
        (250 << 20, 272 << 20, False),
    ],
)
@pytest.mark.parametrize("what", ["bytes", "inodes"])
def test_a_disk_is_nearly_full_with_less_than_a_gigabyte_and_a_twentieth_left(
    monkeypatch, left, whole, full, what
):
    bytes_of, inodes_of = (left, whole), (1 << 50, 1 << 50)
    if what == "inodes":
        bytes_of, inodes_of = inodes_of, bytes_of
    status = SimpleNamespace(
        f_frsize=1,
        f_bavail=bytes_of[0],
        f_blocks=bytes_of[1],
        f_favail=inodes_of[0] // storage.INODE_BYTES,
        f_files=inodes_of[1] // storage.INODE_BYTES,
    )
    monkeypatch.setattr(storage.os, "statvfs", lambda path: status)
    assert StorageWatch(Path("/"))._nearly_full() is full
    status.f_files = status.f_favail = 0  # some file systems do not count them
    assert StorageWatch(Path("/"))._nearly_full() is (full and what == "bytes")
