"""A sandbox that is stopped has ended, what it used is known, and nothing of it stays."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from proctor.errors import SandboxError
from proctor.sandbox.userns import find_ids

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap")]


def states(backend):
    """The folders in which sandboxes keep what changed."""
    return list(backend.folder.glob("*/"))


async def test_nothing_runs_in_it_and_what_it_used_is_known(make, backend):
    sandbox = make()
    await sandbox.start()
    script = "head -c 3000000 /dev/urandom > /app/big; setsid sleep 5000 > /dev/null 2>&1 &"
    await sandbox.exec(["sh", "-c", script])
    await asyncio.gather(sandbox.stop(), sandbox.stop())
    used = sandbox.info().ledger
    assert used["cpu_s"] is None or used["cpu_s"] >= 0
    assert used["disk_bytes"] >= 3_000_000
    with pytest.raises(SandboxError):
        await sandbox.exec(["true"])
    assert states(backend) == []
    await sandbox.stop()


async def test_closing_the_back_end_waits_for_those_that_are_being_removed(make, backend):
    sandboxes = [make() for _ in range(4)]
    for each in sandboxes:
        await each.start()
    stopping = [asyncio.create_task(each.stop()) for each in sandboxes]
    await asyncio.sleep(0)
    place = backend.folder
    await backend.close()
    assert not place.exists()
    await asyncio.gather(*stopping)


async def test_a_stop_that_is_cancelled_removes_everything_all_the_same(make, backend):
    sandbox = make()
    await sandbox.start()
    stopping = asyncio.create_task(sandbox.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    await sandbox.stop()
    assert states(backend) == []


async def test_a_back_end_that_was_closed_begins_anew(make, backend):
    for _ in range(2):
        sandbox = make()
        await sandbox.start()
        await sandbox.exec(["sh", "-c", "echo x > /app/small; mkdir -m 0 /app/closed"])
        await sandbox.stop()
        assert sandbox.info().ledger["disk_bytes"] > 0
        assert states(backend) == []
        await backend.close()


async def test_one_that_ends_takes_nothing_of_its_neighbours(make, backend):
    first, second = make(), make()
    await first.start()
    await second.start()
    await second.exec(["sh", "-c", "echo kept > /app/file"])
    await first.stop()
    assert len(states(backend)) == 1
    assert (await second.exec(["cat", "/app/file"])).stdout == b"kept\n"
    await second.stop()
    assert states(backend) == []


async def test_the_files_of_one_whose_keeper_died_are_removed(make, backend):
    sandbox = make()
    await sandbox.start()
    await sandbox.exec(["sh", "-c", "echo x > /app/small"])
    keeper = await backend.keeper()
    os.kill(keeper.pid, signal.SIGKILL)
    await sandbox.stop()
    assert states(backend) == []


async def test_what_a_killed_owner_had_not_given_away_yet_stops_nobody(make, backend):
    dead = backend.state_dir / "1-2"
    ids = find_ids()
    for name in ("empty", "full/below"):
        (dead / name).mkdir(parents=True)
    (dead / "full/file").write_text("x")
    for each in (dead / "empty", dead / "full"):
        each.chmod(0o700)
    if ids.as_root:
        os.chown(dead, ids.keeper_uid, ids.keeper_gid)
    sandbox = make()
    await sandbox.start()
    assert not dead.exists()
    await sandbox.stop()


async def test_one_that_cannot_be_removed_is_told_of(make, backend, monkeypatch, caplog):
    sandbox = make()
    await sandbox.start()

    async def refuse(keeper):
        raise SandboxError("the disk says no")

    monkeypatch.setattr(sandbox, "_end", refuse)
    with pytest.raises(SandboxError, match="says no"):
        await sandbox.stop()
    assert "the disk says no" in caplog.text
