"""Bubblewrap's sandboxes for the attack tests; podman's are a fixture of all tests."""

from __future__ import annotations

import importlib.util
import tarfile
from pathlib import Path

import pytest

from proctor.sandbox.bubblewrap import Bubblewrap


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
async def backend(tmp_path, cache_dir, anyio_backend):
    made = Bubblewrap(tmp_path / "home", cache_dir=cache_dir)
    yield made
    await made.close()


@pytest.fixture(scope="session")
def host_layer(tmp_path_factory):
    """This machine's programs as the layer of an image: unlike those of a host root, they can be removed."""
    script = Path(__file__).parents[2] / "scripts" / "host_image.py"
    found = importlib.util.spec_from_file_location("host_image", script)
    host_image = importlib.util.module_from_spec(found)
    found.loader.exec_module(host_image)
    folder = tmp_path_factory.mktemp("image")
    with (folder / "image.tar").open("wb") as sink:
        host_image.write(sink, dict(host_image.wanted_files()))
    with tarfile.open(folder / "image.tar") as archive:
        archive.extractall(folder / "layer", filter="fully_trusted")
    (folder / "image.tar").unlink()
    return folder / "layer"
