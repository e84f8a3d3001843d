"""Bubblewrap's sandboxes for the attack tests; podman's are a fixture of all tests."""

from __future__ import annotations

import pytest

from proctor.sandbox.bubblewrap import Bubblewrap


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def compiled(request):
    return getattr(request, "param", True)


@pytest.fixture
async def backend(compiled, tmp_path, cache_dir, anyio_backend):
    made = Bubblewrap(tmp_path / "home", cache_dir=cache_dir, compiled=compiled)
    yield made
    await made.close()
