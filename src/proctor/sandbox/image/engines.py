"""What podman and docker do for us: give images from their storage, and build what our builder cannot."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import ImageError

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


async def save(engine: Engine, reference: str, target: Path) -> None:
    """Write an image of the engine to a file."""
    kind = ["--format", "docker-archive"] if engine.name == "podman" else []
    code, lines = await _run(engine, ("save", *kind, "--output", str(target), reference))
    if code:
        raise ImageError(f"{engine.name} save {reference} failed: {_last(lines)}")


async def build(
    engine: Engine,
    folder: Path,
    dockerfile: Path,
    tag: str,
    *,
    target: str = "",
    arguments: Mapping[str, str] | None = None,
) -> None:
    """Build a Dockerfile with the engine, under a name."""
    given = [word for pair in (arguments or {}).items() for word in ("--build-arg", "=".join(pair))]
    stage = ["--target", target] if target else []
    command = ("build", "--tag", tag, "--label", "proctor=1", *stage, *given)
    code, lines = await _run(engine, (*command, "--file", str(dockerfile), str(folder)))
    if code:
        shown = "".join(f"\n  | {line}" for line in lines)
        raise ImageError(f"{dockerfile}: {engine.name} build ended with exit code {code}{shown}")


async def remove(engine: Engine, tag: str) -> None:
    """Take a name of ours away from the engine again, with the image behind it."""
    await _run(engine, ("rmi", tag))


async def _run(engine: Engine, arguments: Sequence[str]) -> tuple[int, list[str]]:
    """Run the engine's program; its exit code and the last lines of what it printed."""
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            engine.program,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    )
    kept: deque[bytes] = deque(maxlen=8)
    try:
        process = await asyncio.shield(starting)
        assert process.stdout is not None
        while data := await process.stdout.read(1 << 16):
            kept.append(data)
        code = await process.wait()
    except OSError as error:
        raise ImageError(f"cannot run {engine.program}: {error.strerror}") from error
    except BaseException:
        await _end(await starting)  # also when it had only begun to start
        raise
    return code, b"".join(kept).decode(errors="replace").splitlines()[-_LAST_LINES:]


def _last(lines: Sequence[str]) -> str:
    return lines[-1].strip() if lines else "it said nothing"


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
