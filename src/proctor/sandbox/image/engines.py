"""What podman and docker do for us: give images from their storage, and build what our builder cannot."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from proctor.errors import ImageError, SandboxError
from proctor.sandbox.container.engine import DOCKER, DOCKER_SOCKET, PODMAN, Answer, Engine, call

_ASK_S = 30.0
_STORAGE_KEYS = re.compile(
    r'^\s*(?:graphroot|imagestore|rootless_storage_path)\s*=\s*"([^"]+)"', re.MULTILINE
)


def installed() -> tuple[Engine, ...]:
    """Engines that could have images here: podman, and docker when its daemon seems to run."""
    daemon = os.environ.get("DOCKER_HOST") or DOCKER_SOCKET.exists()
    return tuple(
        each for each in (PODMAN, DOCKER) if shutil.which(each.program) and (each is PODMAN or daemon)
    )


def stamp(engine: Engine) -> str | None:
    """Changes when the engine's images do; empty: it has none; None: that cannot be known without asking."""
    if engine.name != "podman":
        return None
    seen = []
    for root in _podman_roots():
        with contextlib.suppress(OSError):  # that of another account is not ours to look at
            for file in sorted(root.glob("*-images/images.json")):
                status = file.stat()
                seen.append(f"{file} {status.st_mtime_ns} {status.st_size}")
    return "\n".join(seen)


def _podman_roots() -> list[Path]:
    home = Path(os.environ.get("HOME", "/"))
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share")
    own = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "containers/storage.conf"
    roots = [Path("/var/lib/containers/storage"), data / "containers/storage"]
    given = os.environ.get("CONTAINERS_STORAGE_CONF")
    files = [Path("/etc/containers/storage.conf"), Path("/usr/share/containers/storage.conf"), own]
    for file in [*files, *([Path(given)] if given else [])]:
        with contextlib.suppress(OSError):
            found = _STORAGE_KEYS.findall(file.read_text(errors="replace"))
            roots += [Path(os.path.expandvars(each)) for each in found]
    return list(dict.fromkeys(roots))


async def image_id(engine: Engine, reference: str) -> str | None:
    """The id of an image in the engine's own storage; None when it is not there."""
    try:
        async with asyncio.timeout(_ASK_S):
            said = await _run(engine, "image", "inspect", "--format", "{{.Id}}", reference)
    except TimeoutError:
        return None
    return said.out.strip().removeprefix("sha256:") or None if said.code == 0 else None


async def save(engine: Engine, reference: str, target: Path) -> None:
    """Write an image of the engine to a file."""
    kind = ["--format", "docker-archive"] if engine.name == "podman" else []
    said = await _run(engine, "save", *kind, "--output", str(target), reference)
    if said.code:
        raise ImageError(f"{engine.name} save {reference} failed: {said.reason}")


async def build(
    engine: Engine,
    folder: Path,
    dockerfile: Path,
    tag: str,
    *,
    target: str = "",
    arguments: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> None:
    """Build a Dockerfile with the engine, under a name."""
    given = [word for pair in (arguments or {}).items() for word in ("--build-arg", "=".join(pair))]
    stage = ["--target", target] if target else []
    command = ("build", "--tag", tag, "--label", "proctor=1", *stage, *given, *options)
    said = await _run(engine, *command, "--file", str(dockerfile), str(folder))
    if said.code:
        shown = "".join(f"\n  | {line}" for line in said.last_lines.splitlines())
        raise ImageError(f"{dockerfile}: {engine.name} build ended with exit code {said.code}{shown}")


async def remove(engine: Engine, tag: str) -> None:
    """Take a name of ours away from the engine again, with the image behind it."""
    await _run(engine, "rmi", tag)


async def _run(engine: Engine, *arguments: str) -> Answer:
    try:
        return await call([engine.program, *arguments], timeout_s=None)
    except SandboxError as error:
        raise ImageError(str(error)) from error
