"""A repository of its own for each test, and no credentials of whoever runs them."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.sandbox.image.registry.servers import Pusher

from proctor.sandbox.bubblewrap import Bubblewrap
from proctor.sandbox.image.layered import LayeredImages
from proctor.sandbox.image.registry.access import Access, Patience
from proctor.sandbox.image.registry.client import Client

QUICK = Patience(first_wait_s=0.01, longest_wait_s=0.02, connect_s=5, silence_s=20)
_numbers = itertools.count()


@pytest.fixture
def pusher(registry_host: str) -> Pusher:
    return Pusher(host=registry_host)


@pytest.fixture
def repository() -> str:
    return f"test/r{next(_numbers)}"


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.delenv("REGISTRY_AUTH_FILE", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def roots(backend: Bubblewrap, images_dir: Path) -> LayeredImages:
    made = LayeredImages(images_dir, backend)
    made.access = Access(patience=QUICK)
    return made


@pytest.fixture
async def client(anyio_backend: str) -> AsyncIterator[Client]:
    async with Client(Access(patience=QUICK)) as made:
        yield made
