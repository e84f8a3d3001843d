"""A real sandbox, on this machine's own system, and a context for an agent in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from proctor.agents.base import AgentContext
from proctor.agents.trajectory import Trajectory
from proctor.sandbox.base import Limits, Root, SandboxRequest
from proctor.sandbox.bubblewrap import Bubblewrap, BubblewrapSandbox


@pytest.fixture
async def sandbox(tmp_path: Path, anyio_backend: str) -> AsyncIterator[BubblewrapSandbox]:
    backend = Bubblewrap(tmp_path / "state")
    root = Root(host=True)
    made = backend.sandbox(SandboxRequest(name=f"terminal-{tmp_path.name}", root=root, limits=Limits()))
    await made.start()
    yield made
    await made.stop()
    await backend.close()


@pytest.fixture
def logged() -> bytearray:
    return bytearray()


@pytest.fixture
def context(logged: bytearray) -> Callable[..., AgentContext]:
    def make(**options) -> AgentContext:
        trajectory = Trajectory(session_id="s", agent="terminal", version="1", model="m", clock=lambda: 0.0)
        given = {"instruction": "Do it.", "workdir": "/", "trajectory": trajectory, **options}
        return AgentContext(log=lambda _, data: logged.extend(data), **given)

    return make
