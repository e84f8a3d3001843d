"""A real sandbox outlives nothing: not its controller's end; and it works for an ordinary user."""

# Scripts for the inside are kept whole, and another process is waited for by looking.
# ruff: noqa: ASYNC110, ASYNC220, ASYNC221, E501

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proctor.sandbox import reaper

pytestmark = [pytest.mark.anyio, pytest.mark.fault, pytest.mark.needs("bubblewrap")]


CONTROLLER = """
import asyncio, sys
from pathlib import Path
from proctor.sandbox.base import *
from proctor.sandbox.bubblewrap import Bubblewrap

async def main():
    backend = Bubblewrap(Path(sys.argv[1]), cache_dir=Path(sys.argv[2]))
    for number in range(3):
        limits = Limits(memory_bytes=1 << 28, network="public" if number == 0 and len(sys.argv) > 3 else "none")
        sandbox = backend.sandbox(SandboxRequest(name=f"s{number}", root=Root(host=True), limits=limits))
        await sandbox.start()
        await sandbox.exec(["sh", "-c", "setsid sleep 12345 >/dev/null 2>&1 & echo x > /tmp/f"])
        asyncio.ensure_future(sandbox.exec(["sleep", "12346"]))
    await sandbox.exec(["true"])
    print((await backend.keeper()).pid, sandbox.init_pid, backend.folder, flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


async def test_after_kill_9_of_the_controller_nothing_is_left(backend, cache_dir, tmp_path):
    home = tmp_path / "home"
    command = [sys.executable, "-c", CONTROLLER, str(home), str(cache_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as controller:
        keeper, init, folder = controller.stdout.readline().split()
        controller.kill()
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in (keeper, init)) and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert not Path(f"/proc/{keeper}").exists()
    assert not Path(f"/proc/{init}").exists()
    assert Path(folder).exists()
    await backend.keeper()
    assert not Path(folder).exists()
    assert set((home / "sandboxes").iterdir()) == {backend.folder, reaper.lock_of(backend.folder)}
    owner = Path(folder).name
    assert not list(Path("/sys/fs/cgroup").glob(f"*/**/proctor-{owner}"))
    assert f"/{owner}/" not in Path("/proc/mounts").read_text()
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if _sleeps(path)]


def _sleeps(cmdline):
    try:
        return cmdline.read_bytes().startswith((b"sleep\x0012345", b"sleep\x0012346"))
    except OSError:
        return False


USER_SCRIPT = """
import asyncio, os, sys
from pathlib import Path
from proctor.sandbox.base import *
from proctor.sandbox.bubblewrap import Bubblewrap

async def main():
    backend = Bubblewrap(Path.home() / ".proctor")
    root = Root(host=True, workdir="/app")
    sandbox = backend.sandbox(SandboxRequest(name="u", root=root, limits=Limits(pids=40, memory_bytes=1 << 27)))
    await sandbox.start()
    run = lambda script, **more: sandbox.exec(["sh", "-c", script], timeout_s=60, **more)
    assert (await run("id -u; touch f; chown 33:33 f; stat -c %u f")).stdout == b"0\\n33\\n"
    assert (await run("cat /proc/1/environ")).exit_code
    assert (await run("ls " + str(Path.home()))).exit_code
    assert (await sandbox.exec(["python3", "-c", "x = bytearray(300_000_000)"])).exit_code
    bomb = await run("for i in $(seq 100); do sleep 60 & done; sleep 60")
    assert bomb.exit_code, bomb
    await sandbox.end_processes(fresh=["/tests"])
    Path(Path.home() / "f").write_text("up")
    await sandbox.upload(Path.home() / "f", "/tests/f")
    await sandbox.download("/tests", Path.home() / "down")
    assert (Path.home() / "down/f").read_text() == "up"
    print(sandbox.info().enforced)
    await run("mkdir -m 0 /app/locked; touch /app/g; chown 7:7 /app/g")
    folder = backend.folder
    await sandbox.stop()
    await backend.close()
    assert not folder.exists()
    print("fine")

asyncio.run(main())
"""


@pytest.mark.needs("root")
async def test_it_works_for_an_ordinary_user(ordinary_user):
    interpreter = "/usr/bin/python3"
    if not Path(interpreter).exists():
        pytest.skip("no interpreter that another user may run")
    source = Path(__file__).parents[2] / "src"
    command = [
        "runuser", "-u", ordinary_user, "--", "env", "-i", f"HOME=/home/{ordinary_user}", "PATH=/usr/bin:/bin",
        f"PYTHONPATH={source}", "PYTHONDONTWRITEBYTECODE=1", interpreter, "-c", USER_SCRIPT,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd="/")
    assert done.stdout.endswith("fine\n"), done.stdout + done.stderr
