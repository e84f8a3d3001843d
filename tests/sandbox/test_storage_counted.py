"""Whatever way a sandbox takes to fill the disk, it is counted and ended."""

from __future__ import annotations

import asyncio
import os
import textwrap

import pytest

pytestmark = pytest.mark.anyio

LIMIT = 16 << 20
WRITTEN = 40 << 20
ENDED_S = 30
_HIDDEN = {
    "below more folders than anybody counts": """
        for _ in range(1200):
            os.mkdir("folder-with-a-name")
            os.chdir("folder-with-a-name")
        for number in range(5):
            fill(open(f"file{number}", "wb"))
    """,
    "in files without a name": """
        files = [open(f"/app/file{number}", "wb") for number in range(5)]
        for number, file in enumerate(files):
            os.unlink(file.name)
            fill(file)
    """,
    "in files that never had one": """
        for number in range(5):
            fill(open(os.open("/app", os.O_TMPFILE | os.O_RDWR), "wb"))
    """,
    "in the files of a thread alone": """
        def write():
            ctypes.CDLL(None).unshare(0x400)
            for number in range(5):
                fill(open(os.open("/app", os.O_TMPFILE | os.O_RDWR), "wb"))
            time.sleep(1000)
        threading.Thread(target=write).start()
    """,
}
_MAPPED = """
    maps = []
    for number in range(5):
        file = open(os.open("/app", os.O_TMPFILE | os.O_RDWR), "r+b")
        fill(file)
        maps.append(mmap.mmap(file.fileno(), 4096))
        kept.clear()
        file.close()
    gc.collect()
"""
_PROGRAM = """
import ctypes, gc, mmap, os, sys, threading, time
kept = []
def fill(file):
    kept.append(file)
    for _ in range({pieces}):
        file.write(os.urandom(1 << 20))
    file.flush()
    os.fsync(file.fileno())
{body}
time.sleep(1000)
"""


def program(body: str, then: str = "") -> list[str]:
    text = _PROGRAM.format(pieces=WRITTEN // (5 << 20), body=textwrap.dedent(body) + then)
    return ["python3", "-c", text]


async def ended_for(sandbox, argv: list[str]) -> str:
    """Why the watch ended what runs; empty when it did not within the time."""
    running = asyncio.create_task(sandbox.exec(argv))
    try:
        async with asyncio.timeout(ENDED_S):
            while not (reason := sandbox.info().ledger.get("storage_exceeded", "")):
                assert not running.done(), running.result()
                await asyncio.sleep(0.05)
        await running
    except TimeoutError:
        return ""
    finally:
        running.cancel()
    return reason


@pytest.mark.parametrize("body", _HIDDEN.values(), ids=_HIDDEN)
async def test_what_is_hidden_counts_for_the_storage_limit(make, body):
    sandbox = make(storage_bytes=LIMIT)
    await sandbox.start()
    assert await ended_for(sandbox, program(body)) == f"storage limit of {LIMIT} bytes exceeded"
    await sandbox.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root of the machine sees what is mapped and not open")
async def test_files_that_are_only_mapped_count_too(make):
    sandbox = make(storage_bytes=LIMIT)
    await sandbox.start()
    assert await ended_for(sandbox, program(_MAPPED))
    await sandbox.stop()


async def test_memory_and_holes_do_not_count_for_the_storage_limit(make):
    sandbox = make(storage_bytes=LIMIT)
    await sandbox.start()
    script = """
import mmap, os
memory = os.memfd_create("m"); os.ftruncate(memory, 1 << 20); os.write(memory, b"x" * (1 << 20))
shared = os.open("/dev/shm/s", os.O_CREAT | os.O_RDWR)
os.unlink("/dev/shm/s")
os.write(shared, b"x" * (1 << 20))
hole = os.open("/app/hole", os.O_CREAT | os.O_RDWR); os.ftruncate(hole, 15 << 20)
print("made", flush=True)
import time; time.sleep(1000)
"""
    made = asyncio.Event()
    running = asyncio.create_task(sandbox.exec(["python3", "-c", script], on_output=lambda *_: made.set()))
    async with asyncio.timeout(ENDED_S):
        await made.wait()
        used, inodes = await sandbox._measure()
    assert used < 1 << 20
    assert inodes < 20
    running.cancel()
    await sandbox.stop()


async def test_what_a_deep_tree_took_is_in_the_ledger(make):
    sandbox = make()
    await sandbox.start()
    argv = program(_HIDDEN["below more folders than anybody counts"], "sys.exit(0)")
    assert (await sandbox.exec(argv)).exit_code == 0
    await sandbox.stop()
    assert sandbox.info().ledger["disk_bytes"] >= WRITTEN
