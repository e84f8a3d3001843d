"""What podman and docker do for us: give images from their storage, and build what our builder cannot."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import ImageError
from proctor.sandbox.image.recipe import Settings

NAMES = ("podman", "docker")
_ASK_S = 30.0
_LAST_LINES = 20
_STORAGE_KEYS = re.compile(
    r'^\s*(?:graphroot|imagestore|rootless_storage_path)\s*=\s*"([^"]+)"', re.MULTILINE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An engine that is installed."""

    name: str
    program: str


def installed() -> tuple[Engine, ...]:
    """Engines that could have images here: podman, and docker when its daemon seems to run."""
    found = []
    if podman := shutil.which("podman"):
        found.append(Engine(name="podman", program=podman))
    docker = shutil.which("docker")
    if docker and (os.environ.get("DOCKER_HOST") or Path("/var/run/docker.sock").exists()):
        found.append(Engine(name="docker", program=docker))
    return tuple(found)


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
    arguments = ("image", "inspect", "--format", "{{.Id}}", reference)
    try:
        async with asyncio.timeout(_ASK_S):
            code, lines = await _run(engine, arguments)
    except TimeoutError:
        return None
    return lines[-1].strip().removeprefix("sha256:") if code == 0 and lines else None


async def settings(engine: Engine, reference: str) -> Settings:
    """How commands run in an image of the engine."""
    code, lines = await _run(engine, ("image", "inspect", "--format", "{{json .Config}}", reference))
    try:
        config = json.loads(lines[-1]) if code == 0 else {}
    except (ValueError, IndexError):
        config = {}
    pairs = [str(each).partition("=") for each in config.get("Env") or ()]
    return Settings(
        env={key: value for key, _, value in pairs},
        workdir=str(config.get("WorkingDir") or "/"),
        user=str(config.get("User") or "root"),
    )


async def save(engine: Engine, reference: str, target: Path) -> None:
    """Write an image of the engine to a file."""
    kind = ["--format", "docker-archive"] if engine.name == "podman" else []
    code, lines = await _run(engine, ("save", *kind, "--output", str(target), reference))
    if code:
        raise ImageError(f"{engine.name} save {reference} failed: {_last(lines)}")


async def build(engine: Engine, folder: Path, dockerfile: Path, tag: str) -> None:
    """Build a Dockerfile with the engine, under a name."""
    code, lines = await _run(
        engine, ("build", "--tag", tag, "--label", "proctor=1", "--file", str(dockerfile), str(folder))
    )
    if code:
        shown = "".join(f"\n  | {line}" for line in lines)
        raise ImageError(f"{dockerfile}: {engine.name} build ended with exit code {code}{shown}")


async def _run(engine: Engine, arguments: Sequence[str]) -> tuple[int, list[str]]:
    """Run the engine's program; its exit code and the last lines of what it printed."""
    try:
        process = await asyncio.create_subprocess_exec(
            engine.program,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            limit=1 << 20,
        )
    except OSError as error:
        raise ImageError(f"cannot run {engine.program}: {error.strerror}") from error
    assert process.stdout is not None
    kept: deque[bytes] = deque(maxlen=8)
    try:
        while data := await process.stdout.read(1 << 16):
            kept.append(data)
        code = await process.wait()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())
        raise
    return code, b"".join(kept).decode(errors="replace").splitlines()[-_LAST_LINES:]


def _last(lines: Sequence[str]) -> str:
    return lines[-1].strip() if lines else "it said nothing"
