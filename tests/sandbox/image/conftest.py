"""Builds in real sandboxes, without the engines and the network of the machine that runs the tests."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from proctor.errors import ImageError
from proctor.model.task import Task, TaskEnvironment
from proctor.sandbox.base import Root, RootOptions, SandboxRequest
from proctor.sandbox.bubblewrap import Bubblewrap
from proctor.sandbox.image import engines, layered
from proctor.sandbox.image.layered import LayeredImages
from proctor.sandbox.image.references import Image

MakeTask = Callable[..., Task]
Look = Callable[[Root, str], Awaitable[str]]


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "installed", lambda: ())
    monkeypatch.setattr(layered, "network_for_builds", lambda: "none")
    pull = LayeredImages._pull

    async def only_from_own_registries(self: LayeredImages, reference: str) -> Image:
        if self.access is None and not reference.startswith("127.0.0.1:"):
            raise ImageError(f"{reference} is in no registry of the tests")
        return await pull(self, reference)

    monkeypatch.setattr(LayeredImages, "_pull", only_from_own_registries)


@pytest.fixture
def images_dir(tmp_path: Path) -> Path:
    return tmp_path / "images"


@pytest.fixture
def images(backend: Bubblewrap, images_dir: Path) -> LayeredImages:
    """Roots of this machine's own system."""
    return LayeredImages(images_dir, backend, RootOptions(host_root=True))


@pytest.fixture
def images_again(backend: Bubblewrap, images_dir: Path) -> Callable[[], LayeredImages]:
    """The same, as another process would make them."""
    return lambda: LayeredImages(images_dir, backend, RootOptions(host_root=True))


@pytest.fixture
def real_images(backend: Bubblewrap, images_dir: Path) -> LayeredImages:
    """Roots of images only."""
    return LayeredImages(images_dir, backend)


@pytest.fixture
def make_task(tmp_path: Path) -> MakeTask:
    """A task with a Dockerfile and files beside it."""

    def made(
        dockerfile: str | None, /, *, name: str = "task", image: str | None = None, **more: object
    ) -> Task:
        folder = tmp_path / name / "environment"
        folder.mkdir(parents=True, exist_ok=True)
        files = more.pop("files", {})
        assert isinstance(files, dict)
        for path, content in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(content)
        file = None
        if dockerfile is not None:
            file = folder / "Dockerfile"
            file.write_text(dockerfile)
        digest = hashlib.sha256(repr((dockerfile, sorted(files.items()))).encode()).hexdigest()
        environment = TaskEnvironment(folder=folder, dockerfile=file, image=image, **more)  # type: ignore[arg-type]
        return Task(name=name, path=folder.parent, digest=digest, environment=environment)

    return made


@pytest.fixture
def look(backend: Bubblewrap) -> Look:
    """Run a script in a sandbox of a root; what it printed."""

    async def looked(root: Root, script: str) -> str:
        sandbox = backend.sandbox(SandboxRequest(name="look", root=root))
        await sandbox.start()
        try:
            result = await sandbox.exec(["sh", "-c", script])
        finally:
            await sandbox.stop()
        assert result.exit_code == 0, result
        return result.stdout.decode().strip()

    return looked
