"""Real sandboxes for tests: one back end per test, one cache per session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from proctor.sandbox.base import Limits, Root, SandboxRequest
from proctor.sandbox.bubblewrap import Bubblewrap, BubblewrapSandbox


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
async def backend(tmp_path: Path, cache_dir: Path, anyio_backend: str) -> AsyncIterator[Bubblewrap]:
    made = Bubblewrap(tmp_path / "home", cache_dir=cache_dir)
    yield made
    await made.close()


@pytest.fixture
def make(backend: Bubblewrap) -> Callable[..., BubblewrapSandbox]:
    """A sandbox of the host's system, with limits by keyword."""

    def made(root: Root | None = None, env: dict[str, str] | None = None, **limits) -> BubblewrapSandbox:
        return backend.sandbox(
            SandboxRequest(
                name="t",
                root=root or Root(host=True, workdir="/app"),
                limits=Limits(**limits),
                env=env or {},
            )
        )

    return made


@pytest.fixture
async def sandbox(make: Callable[..., BubblewrapSandbox]) -> AsyncIterator[BubblewrapSandbox]:
    made = make()
    await made.start()
    yield made
    await made.stop()
