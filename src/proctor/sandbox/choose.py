"""From a name to a back end. New ones are one line in the table."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from proctor.errors import SandboxError, UsageError
from proctor.model.task import Task, TaskEnvironment
from proctor.sandbox.base import Backend, Root


class MakesRoots(Protocol):
    """What makes the root file systems that the sandboxes of a back end start from."""

    async def root(self, task: Task, environment: TaskEnvironment | None = None, /) -> Root:
        """The root of a task, or of one of its environments; ImageError when it cannot be made."""

    async def close(self) -> None:
        """End builds that are still going on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of sandbox: how to open it, and a quick look at whether it could work here."""

    open: Callable[[Path], Backend]
    obstacle: Callable[[], str]
    """Why it cannot work here, or nothing."""
    images: Callable[[Path, Backend], MakesRoots]
    """What makes roots for its sandboxes, with a folder for what it keeps."""


def _open_bubblewrap(home: Path) -> Backend:
    from proctor.sandbox.bubblewrap import Bubblewrap

    return Bubblewrap(home)


def _bubblewrap_obstacle() -> str:
    from proctor.sandbox.probe import obstacle

    return obstacle()


def _open_fake(home: Path) -> Backend:
    from proctor.sandbox.fake import Fake

    del home
    return Fake()


def _open_podman(home: Path) -> Backend:
    from proctor.sandbox.podman import open_podman

    return open_podman(home)


def _podman_obstacle() -> str:
    from proctor.sandbox.podman import obstacle

    return obstacle()


def _open_docker(home: Path) -> Backend:
    from proctor.sandbox.docker import open_docker

    return open_docker(home)


def _docker_obstacle() -> str:
    from proctor.sandbox.docker import obstacle

    return obstacle()


def _layered_images(cache_dir: Path, backend: Backend) -> MakesRoots:
    from proctor.sandbox.image import Images

    return Images(cache_dir, backend)


def _container_images(cache_dir: Path, backend: Backend) -> MakesRoots:
    from proctor.sandbox.container.backend import Containers
    from proctor.sandbox.container.images import ContainerImages

    assert isinstance(backend, Containers)
    return ContainerImages(cache_dir, backend)


BACKENDS: dict[str, Kind] = {
    "bubblewrap": Kind(open=_open_bubblewrap, obstacle=_bubblewrap_obstacle, images=_layered_images),
    "podman": Kind(open=_open_podman, obstacle=_podman_obstacle, images=_container_images),
    "docker": Kind(open=_open_docker, obstacle=_docker_obstacle, images=_container_images),
    "fake": Kind(open=_open_fake, obstacle=lambda: "", images=_layered_images),
}
AUTO = ("bubblewrap", "podman", "docker")
"""What `auto` tries, in this order."""


def choose(name: str) -> str:
    """The back end that a name stands for; `auto` is the first that can work here."""
    if name == "auto":
        obstacles = {each: BACKENDS[each].obstacle() for each in AUTO}
        for each, obstacle in obstacles.items():
            if not obstacle:
                return each
        reasons = "; ".join(f"{each}: {obstacle}" for each, obstacle in obstacles.items())
        raise SandboxError(f"no kind of sandbox works here ({reasons}); `proctor doctor` says more")
    if name not in BACKENDS:
        near = difflib.get_close_matches(name, [*BACKENDS, "auto"], n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise UsageError(f"'{name}' is not a sandbox; there are auto, {', '.join(sorted(BACKENDS))}{hint}")
    return name


def open_backend(name: str, home: Path) -> Backend:
    """Open a back end by name; `home` is where its state and caches go."""
    return BACKENDS[choose(name)].open(home)


def open_images(backend: Backend, cache_dir: Path) -> MakesRoots:
    """What makes the roots of a back end's sandboxes."""
    return BACKENDS[backend.name].images(cache_dir, backend)
