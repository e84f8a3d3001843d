"""Two Proctors that do not see each other's processes: neither removes what the other needs."""

# The test is about processes and has nothing else to do meanwhile.
# ruff: noqa: ASYNC220, ASYNC221

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from proctor.owner import owner_name
from proctor.sandbox import limits
from proctor.sandbox.base import Limits, Root, SandboxRequest
from proctor.sandbox.bubblewrap import Bubblewrap

pytestmark = [pytest.mark.anyio, pytest.mark.needs("root")]
UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
BUSY = """
import time
while time.process_time() < 0.5: pass
print("spent", flush=True)
while True: pass
"""
REAP = """
import asyncio, sys
from pathlib import Path
from proctor.sandbox.bubblewrap import Bubblewrap
from proctor.sandbox.base import *

async def main():
    backend = Bubblewrap(Path(sys.argv[1]), cache_dir=Path(sys.argv[2]))
    request = SandboxRequest(name="other", root=Root(host=True), limits=Limits(pids=50))
    sandbox = backend.sandbox(request)
    await sandbox.start()
    print(*await backend.reap(), flush=True)
    if len(sys.argv) > 3:
        sys.stdin.read()
    await backend.close()

asyncio.run(main())
"""


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
async def backend(tmp_path, cache_dir, anyio_backend):
    made = Bubblewrap(tmp_path / "home", cache_dir=cache_dir)
    yield made
    await made.close()


async def started(backend, name="t"):
    request = SandboxRequest(name=name, root=Root(host=True), limits=Limits(pids=50, memory_bytes=1 << 28))
    sandbox = backend.sandbox(request)
    await sandbox.start()
    return sandbox


@pytest.mark.parametrize("before", [UNSHARE, []], ids=["another namespace", "the same"])
async def test_the_groups_and_folders_of_a_living_one_stay(backend, tmp_path, cache_dir, before):
    sandbox = await started(backend)
    for home in (tmp_path / "home", tmp_path / "another"):
        done = subprocess.run(
            [*before, sys.executable, "-c", REAP, str(home), str(cache_dir)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert owner_name() not in done.stdout, "nothing of this process was removed"
        assert backend.folder.is_dir()
        assert (await sandbox.exec(["true"])).exit_code == 0
        assert (await (await started(backend, "next")).exec(["true"])).exit_code == 0
    if backend.cgroups:
        assert all(folder.is_dir() for folder in backend.cgroups.parents.values())


async def test_what_a_killed_one_in_another_namespace_left_is_removed(backend, tmp_path, cache_dir):
    state_dir = tmp_path / "home/sandboxes"
    command = [*UNSHARE, sys.executable, "-c", REAP, str(tmp_path / "home"), str(cache_dir), "stay"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        await started(backend)
        assert await backend.reap() == ()
        left = {each for each in state_dir.iterdir() if each.is_dir()} - {backend.folder}
        assert len(left) == 1
        os.killpg(process.pid, signal.SIGKILL)
        process.stdout.read()
    removed = " ".join(await backend.reap())
    assert f"folder {left.pop()}" in removed
    assert [each.name for each in state_dir.iterdir() if each.is_dir()] == [backend.folder.name]


async def test_a_sandbox_starts_after_its_groups_were_removed_from_outside(backend):
    sandbox = await started(backend)
    if not backend.cgroups:
        pytest.skip("no writable control groups")
    await sandbox.stop()
    for parent in set(backend.cgroups.parents.values()):
        parent.rmdir()
    again = await started(backend, "again")
    assert (await again.exec(["true"])).exit_code == 0
    assert "cgroup" in again.info().enforced["memory"]


async def test_cpu_time_of_what_was_killed_is_counted(backend):
    sandbox, spent = await started(backend), asyncio.Event()
    busy = asyncio.create_task(sandbox.exec(["python3", "-c", BUSY], on_output=lambda *_: spent.set()))
    async with asyncio.timeout(120):
        await spent.wait()
    busy.cancel()
    await asyncio.wait([busy])
    await sandbox.stop()
    ledger = sandbox.info().ledger
    if not (backend.cgroups and (backend.cgroups.version == 2 or "cpuacct" in backend.cgroups.parents)):
        pytest.skip("no control group counts CPU time here")
    assert ledger["cpu_s"] >= 0.5
    assert "unknown" not in ledger


async def test_without_control_groups_cpu_time_is_unknown_and_says_why(backend, monkeypatch):
    monkeypatch.setattr(limits, "find_cgroups", lambda _: None)
    sandbox = await started(backend)
    assert (await sandbox.exec(["true"])).exit_code == 0
    await sandbox.stop()
    ledger = sandbox.info().ledger
    assert ledger["cpu_s"] is None
    assert "no control group" in ledger["unknown"]["cpu_s"]
