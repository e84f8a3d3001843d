"""What the kernel counts per account is divided: a sandbox that takes all leaves the others theirs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytestmark = pytest.mark.anyio

_COUNT = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def taken():
    if sys.argv[1] == "inotify":
        return libc.inotify_init1(0) >= 0
    if sys.argv[1] == "fanotify":
        return libc.fanotify_init(0x200, 0) >= 0
    name = f"/q{os.getpid()}-{count}".encode()
    return libc.mq_open(name, 0o102, 0o600, None) >= 0
"""
_ALL = (
    _COUNT
    + """
for uid in range(1000, 1100):
    if os.fork() == 0:
        os.setuid(uid)
        count = 0
        while taken():
            count += 1
        os.write(1, b"." * count + b"!")
        time.sleep(1000)
time.sleep(1000)
"""
)
_SOME = (
    _COUNT
    + """
count = 0
while count < 2 and taken():
    count += 1
print(count)
"""
)


@pytest.mark.parametrize("what", ["inotify", "fanotify", "queues"])
async def test_a_sandbox_that_takes_all_it_can_leaves_the_others_theirs(make, what):
    hostile, other = make(), make()
    await hostile.start()
    await other.start()
    took, done = bytearray(), asyncio.Event()

    def note(_stream, data):
        took.extend(data)
        if took.count(b"!") == 100:
            done.set()

    running = asyncio.create_task(hostile.exec(["python3", "-c", _ALL, what], on_output=note))
    async with asyncio.timeout(60):
        await done.wait()
    result = await other.exec(["python3", "-c", _SOME, what])
    assert result.stdout == b"2\n", (took.count(b"."), result)
    running.cancel()
    await hostile.stop()
    await other.stop()


async def test_an_ordinary_program_has_as_many_as_a_fourth_of_all(sandbox):
    whole = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    script = _COUNT + "\ncount = 0\nwhile taken(): count += 1\nprint(count)"
    result = await sandbox.exec(["python3", "-c", script, "inotify"])
    assert int(result.stdout) == whole // 4
