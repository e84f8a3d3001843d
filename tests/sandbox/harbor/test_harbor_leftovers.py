"""Machines of a service that fails to delete them: asked again, named, and not forgotten."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from tests.harbor_stand_in import install_stand_in

from proctor.errors import SandboxError
from proctor.sandbox.base import Root, SandboxRequest
from proctor.sandbox.harbor import backend as backends
from proctor.sandbox.harbor.backend import HarborBackend

pytestmark = pytest.mark.anyio
PAID = "paid_environment:PaidEnvironment"
ENVIRONMENT = """
from pathlib import Path
from harbor.environments.base import BaseEnvironment

class PaidEnvironment(BaseEnvironment):
    async def start(self, force_build):
        Path("machines").mkdir(exist_ok=True)
        Path("machines", self.session_id).touch()

    async def stop(self, delete):
        asked = Path("asked")
        asked.write_text((asked.read_text() if asked.exists() else "") + self.session_id + "\\n")
        failures = Path("failures")
        left = int(failures.read_text()) if failures.exists() else 0
        failures.write_text(str(max(0, left - 1)))
        if left:
            raise RuntimeError("503 from the service")
        Path("machines", self.session_id).unlink(missing_ok=True)
"""


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(backends, "AGAIN_S", (0.0, 0.0, 0.0))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paid_environment.py").write_text(ENVIRONMENT)
    install_stand_in(tmp_path / "home/cache")
    return tmp_path


def machines(place: Path) -> list[str]:
    return sorted(file.name for file in (place / "machines").iterdir())


async def started(place: Path, name: str = "run-1-a"):
    backend = HarborBackend(PAID, place / "state")
    sandbox = backend.sandbox(SandboxRequest(name=name, root=Root()))
    await sandbox.start()
    assert machines(place) == [name]
    return backend, sandbox


async def test_a_stop_that_fails_is_tried_again(place):
    backend, sandbox = await started(place)
    (place / "failures").write_text("2")
    await sandbox.stop()
    assert machines(place) == []
    assert (place / "asked").read_text().split() == ["run-1-a"] * 3
    await backend.close()
    assert list((place / "state/harbor-sandboxes").iterdir()) == []


async def test_what_remains_is_named_and_tried_again_at_the_end(place):
    backend, sandbox = await started(place)
    (place / "failures").write_text("4")
    with pytest.raises(
        SandboxError, match=r"did not delete run-1-a and may charge for it .*503 from the service"
    ):
        await sandbox.stop()
    assert machines(place) == ["run-1-a"]
    await backend.close()
    assert machines(place) == []
    assert list((place / "state/harbor-sandboxes").iterdir()) == []


LEAVING = """
import asyncio, os, sys
from pathlib import Path
from proctor.sandbox.base import Root, SandboxRequest
from proctor.sandbox.harbor import backend as backends

async def main():
    backends.AGAIN_S = ()
    backend = backends.HarborBackend(sys.argv[1], Path(sys.argv[2]))
    await backend.sandbox(SandboxRequest(name="run-1-b", root=Root())).start()
    Path("failures").write_text("1000")
    await backend.close()

asyncio.run(main())
"""


async def test_what_is_left_at_the_end_is_said_and_deleted_by_the_next_start(place, caplog):
    command = [sys.executable, "-c", LEAVING, PAID, str(place / "state")]
    left = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: ASYNC221 - nothing else runs
    assert "did not delete run-1-b and may charge for it" in left.stderr
    assert machines(place) == ["run-1-b"]
    other = HarborBackend("modal", place / "state")
    assert await other.reap() == (), "another kind has not what it takes"
    await other.close()
    backend = HarborBackend(PAID, place / "state")
    with caplog.at_level(logging.WARNING):
        assert await backend.reap() == ()
    assert "did not delete run-1-b" in caplog.text
    (place / "failures").write_text("0")
    assert await backend.reap() == (f"environment run-1-b of harbor:{PAID}",)
    assert machines(place) == []
    assert await backend.reap() == ()
    await backend.close()
    assert list((place / "state/harbor-sandboxes").iterdir()) == []


async def test_what_a_killed_process_left_is_deleted_by_the_next_start(place):
    killed = LEAVING.replace("await backend.close()", "os.kill((await backend.bridge()).pid, 9); os._exit(1)")
    subprocess.run([sys.executable, "-c", killed, PAID, str(place / "state")], check=False)  # noqa: ASYNC221
    assert machines(place) == ["run-1-b"]
    (place / "failures").write_text("0")
    backend = HarborBackend(PAID, place / "state")
    assert await backend.reap() == (f"environment run-1-b of harbor:{PAID}",)
    assert machines(place) == []
    await backend.close()


async def test_one_that_runs_is_nobodys_leftover(place):
    backend, sandbox = await started(place)
    (noted,) = (place / "state/harbor-sandboxes").glob("*/*.environment.json")
    assert json.loads(noted.read_text())["name"] == "run-1-a"
    other = HarborBackend(PAID, place / "state")
    assert await other.reap() == ()
    assert machines(place) == ["run-1-a"]
    await other.close()
    await sandbox.stop()
    await backend.close()
