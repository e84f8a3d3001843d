"""The same shell in a container, whose init is ours too."""

from __future__ import annotations

import pytest

from proctor.agents.terminal.program import FOLDER
from proctor.agents.terminal.session import Session
from proctor.sandbox.base import Root, SandboxRequest

pytestmark = [pytest.mark.anyio, pytest.mark.needs("podman")]
LONG_S = 60


@pytest.mark.parametrize("user", ["root", "nobody"])
async def test_a_container_is_asked_over_a_line(podman, podman_image, context, user):
    sandbox = podman.sandbox(SandboxRequest(name="terminal", root=Root(image=podman_image)))
    await sandbox.start()
    try:
        shell = Session(sandbox, context(user=user))
        await shell.open()
        await shell.run("cd /tmp; X=1", LONG_S)
        seen = await shell.run(f'id -un; echo "$X $PWD"; test -e {FOLDER}', LONG_S)
        assert (seen.text, seen.exit_code) == (f"{user}\n1 /tmp", 1)
        assert (await shell.run("exit", LONG_S)).restarted
        await shell.close()
    finally:
        await sandbox.stop()
