"""A real sandbox, on this machine's own system, and a context for an agent in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

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


class WithoutLines:
    """The same sandbox, as a kind that passes no descriptors."""

    def __init__(self, inside: BubblewrapSandbox) -> None:
        self._inside = inside

    def __getattr__(self, name: str) -> Any:
        if name == "dial":
            raise AttributeError(name)
        return getattr(self._inside, name)


@pytest.fixture(params=["line", "commands"])
def place(request: pytest.FixtureRequest, sandbox: BubblewrapSandbox) -> Any:
    """Where a terminal can be asked over a line, and where only by commands."""
    return sandbox if request.param == "line" else WithoutLines(sandbox)


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
