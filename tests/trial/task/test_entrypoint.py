"""The entrypoint of an image runs beside the agent, and whatever it does, the attempt goes on."""

from __future__ import annotations

import pytest

from proctor.sandbox.base import Root, SandboxRequest
from proctor.sandbox.bubblewrap import Bubblewrap
from proctor.trial.task import entrypoint
from proctor.trial.task.entrypoint import Entrypoint, starts_something


@pytest.fixture
async def sandbox(tmp_path, anyio_backend):
    backend = Bubblewrap(tmp_path / "home", cache_dir=tmp_path / "cache")
    made = backend.sandbox(SandboxRequest(name="t", root=Root(host=True, workdir="/app")))
    await made.start()
    yield made
    await backend.close()


async def begun(sandbox, *argv: str, checked: bool = True) -> tuple[list[str], bytes, bytes]:
    """Its notes, its log, and what is left of it inside when the agent would begin."""
    logged: list[bytes] = []
    started = Entrypoint(lambda _, data: logged.append(data))
    root = Root(host=True, workdir="/app", entrypoint=argv)
    notes = await started.start(sandbox, root, checked=checked)
    left = await sandbox.exec(["/bin/sh", "-c", "cat /app/prepared; pgrep -a sleep"])
    await started.stop()
    await started.stop()
    return notes, b"".join(logged), left.stdout


async def test_the_agent_begins_when_the_entrypoint_has_prepared_everything(sandbox):
    script = 'echo hello; echo yes > /app/prepared; exec "$@"'
    notes, log, left = await begun(sandbox, "/bin/sh", "-c", script, "entrypoint")
    assert notes == []
    assert log.startswith(b"hello\n")
    assert left.startswith(b"yes\n")
    assert b"sleep infinity" in left


async def test_programs_in_its_background_stay_and_get_a_moment(sandbox, monkeypatch):
    monkeypatch.setattr(entrypoint, "_SETTLE_S", 0.01)
    script = 'sleep 1000 & exec "$@"'
    notes, log, left = await begun(sandbox, "/bin/sh", "-c", script, "entrypoint", checked=False)
    assert notes == []
    assert b"nothing" not in log
    assert b"sleep 1000" in left


async def test_one_that_never_starts_its_command_goes_on_beside_the_agent(sandbox, monkeypatch):
    monkeypatch.setattr(entrypoint, "_REACH_S", 0.05)
    notes, log, left = await begun(sandbox, "/bin/sh", "-c", "sleep 2000")
    assert (notes, log) == ([], b"")
    assert b"sleep 2000" in left


async def test_one_that_ends_is_noted_and_no_error(sandbox):
    notes, log, _ = await begun(sandbox, "/bin/sh", "-c", "echo no luck; exit 7")
    assert notes == [
        "the image's ENTRYPOINT ended with exit code 7 before the agent began; see entrypoint.log"
    ]
    assert log == b"no luck\n"


async def test_one_that_is_not_there_is_noted(sandbox):
    notes, _, _ = await begun(sandbox, "/no/such/program")
    assert "ended with exit code 127" in notes[0]


async def test_an_image_without_one_starts_nothing(sandbox):
    assert (await begun(sandbox))[2] == b""


@pytest.mark.parametrize(
    ("argv", "starts"),
    [
        ((), False),
        (("/bin/bash",), False),
        (("sh", "-c"), False),
        (("/bin/sh", "-c", "x"), True),
        (("/e",), True),
    ],
)
def test_a_bare_shell_starts_nothing(argv, starts):
    assert starts_something(argv) is starts
