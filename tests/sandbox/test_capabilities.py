"""What root inside may do, read from the kernel in both kinds of sandboxes."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.sandbox.base import Root, SandboxRequest
from proctor.sandbox.capabilities import CAPABILITIES, MASK

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]
SETS = ["CapPrm", "CapEff", "CapBnd"]


async def held(sandbox) -> dict[str, int]:
    status = (await sandbox.exec(["cat", "/proc/self/status"], user="root")).stdout.decode()
    values = dict(line.split(":\t") for line in status.splitlines() if line.startswith("Cap"))
    return {name: int(values[name], 16) for name in SETS}


@pytest.mark.needs("bubblewrap")
async def test_root_of_a_native_sandbox_has_the_list_and_no_more(sandbox):
    assert await held(sandbox) == dict.fromkeys(SETS, MASK)


@pytest.mark.needs("podman")
async def test_root_of_a_container_has_the_same_list(podman, podman_image):
    sandbox = podman.sandbox(SandboxRequest(name="t", root=Root(image=podman_image)))
    await sandbox.start()
    assert await held(sandbox) == dict.fromkeys(SETS, MASK)
    await sandbox.stop()


def test_the_documentation_names_the_whole_list():
    page = (ROOT / "docs/explanation/sandboxes.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| few rights |"))
    named = row.partition("need them: ")[2].partition(" (")[0].split(", ")
    assert named == [name.lower() for name in CAPABILITIES]
