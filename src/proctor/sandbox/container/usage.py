"""What a running container uses and has changed: its control groups, and the folder of its changes.

That folder holds whatever the inside wrote, so that nothing in it is followed, and what runs on it is root of
the containers only. Changes are saved as a tar, and put into another container before that starts.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from proctor.errors import SandboxError
from proctor.sandbox import unpack
from proctor.sandbox.base import Limits
from proctor.sandbox.container.engine import Adjustment, Engine, call, end, engine_environment
from proctor.sandbox.limits import WATCHED, Group, group_paths, how_enforced
from proctor.sandbox.lower import Lower
from proctor.sandbox.programs import init_program
from proctor.sandbox.state import TAR_DONE, tar_command, write_whole
from proctor.sandbox.storage import END_S, measure_command, read_measure

_CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")
_NOT_MEASURED = "not enforced as a whole: the container's changes cannot be measured here"
_SLACK_BYTES = 1 << 20
"""The kernel charges memory in batches, so a full group may be short of its limit by a little."""


def group_of(pid: int, proc: Path = Path("/proc")) -> Group | None:
    """The control groups of a process, as far as they can be read here."""
    try:
        mounted = [line.split() for line in (proc / "self/mounts").read_text().splitlines()]
        ours, paths = (group_paths((proc / who / "cgroup").read_text()) for who in ("self", str(pid)))
    except OSError:
        return None
    # Where an engine makes no group, its containers share ours, and what is counted there is everyone's.
    paths = {name: path for name, path in paths.items() if path != ours.get(name)}
    folders: dict[str, str] = {}
    for _, folder, kind, options, *_ in mounted:
        if kind == "cgroup2" and (found := _below(folder, paths.get("", ""))):
            if (found / "memory.current").exists():
                return Group(version=2, folders=dict.fromkeys(("memory", "pids", "cpu"), str(found)))
        elif kind == "cgroup":
            for name in set(_CONTROLLERS) & set(options.split(",")):
                if found := _below(folder, paths.get(name, "")):
                    folders[name] = str(found)
    return Group(version=1, folders=folders) if folders else None


def _below(root: str, path: str) -> Path | None:
    """A group other than the root, whose limits would be everyone's."""
    folder = Path(root) / path.lstrip("/")
    return folder if path.strip("/") and ".." not in path and folder.is_dir() else None


def used(group: Group) -> dict[str, Any]:
    """What a container used so far; keys as in `SandboxInfo.ledger`."""
    found = group.usage()
    if group.version == 1:
        # Engines limit memory and swap together, and then the kernel counts no failures: the peak tells.
        limit = group.read("memory", "memory.limit_in_bytes").strip()
        if limit.isdigit() and found.get("peak_memory_bytes", 0) >= int(limit) - _SLACK_BYTES:
            found["host_oom"] = False
    return found


def enforcement(limits: Limits, group: Group | None, *, network: str, storage: bool) -> dict[str, str]:
    """For each limit that was asked for: how it holds, as read back from the kernel, or why not."""
    version = group.version if group else 0
    files = {
        "memory": "memory.max" if version == 2 else "memory.limit_in_bytes",
        "pids": "pids.max",
        "cpu": "cpu.max" if version == 2 else "cpu.cfs_quota_us",
    }
    set_now = {name: group.read(name, file).split() for name, file in files.items()} if group else {}
    held = [name for name, text in set_now.items() if text and text[0].isdigit() and int(text[0]) < 1 << 60]
    return how_enforced(
        limits,
        network=network,
        version=version,
        held=held,
        no_cpu="the engine set no cpu limit here",
        storage=WATCHED if storage else _NOT_MEASURED,
    )


async def find_changes(pid: int, enter: Sequence[str]) -> tuple[Path, ...]:
    """Where on the host the changes of a container go; nothing when that cannot be known.

    `enter` is what may look into a process that ordinary users may not, such as our init.
    """
    own = Path("/proc/self/mountinfo").read_text()
    file = Path(f"/proc/{pid}/mountinfo")
    if not enter:
        with suppress(OSError):
            return changes(file.read_text(), own)
    with suppress(SandboxError):
        return changes((await call([*enter, "cat", str(file)])).out, own)
    return ()


def changes(inside_text: str, here_text: str) -> tuple[Path, ...]:
    """The folder of a container's changes, then the files it was given to write, from both mount tables."""
    try:
        inside, here = _mounted(inside_text), _mounted(here_text)
    except IndexError:
        return ()
    top = next((each for each in inside if each[2] == "/"), None)
    upper = re.search(r"(?:^|,)upperdir=(/[^,]+)", top[4]) if top and top[3] == "overlay" else None
    if not upper:
        return ()
    files = [_host_path(device, root, here) for device, root, target, *_ in inside if target in _GIVEN]
    return (Path(upper[1]), *(each for each in files if each))


_GIVEN = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/run/.containerenv")
_Mount = tuple[str, str, str, str, str]


def _mounted(text: str) -> list[_Mount]:
    """Device, path on it, place, kind and options of each mount that a process sees."""
    found = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        found.append((fields[2], fields[3], fields[4], kind[0], kind[-1]))
    return found


def _host_path(device: str, root: str, here: Sequence[_Mount]) -> Path | None:
    """Where a path of a device is in our own view."""
    for mounted, base, target, *_ in here:
        if mounted == device and Path(root).is_relative_to(base):
            return Path(target) / Path(root).relative_to(base)
    return None


async def disk_usage(
    places: Sequence[Path], enter: Sequence[str], *, pid: int = 0, limit_bytes: int | None = None
) -> tuple[int, int]:
    """Bytes and inodes of all these, and of files without a name that the processes beside `pid` hold open.

    `enter` is what may read it all.
    """
    program = str(await asyncio.to_thread(init_program))
    command = measure_command(program, [str(place) for place in places], limit_bytes=limit_bytes, pid=pid)
    said = await call([*enter, *command], timeout_s=END_S)
    return read_measure(said.code, said.out, said.err)


async def save(upper: Path, target: Path, *, max_bytes: int, enter: Sequence[str]) -> bool:
    """Write the changes as a tar; False when they are too much to keep."""

    async def write(out: int) -> bool:
        command = [*enter, *tar_command(str(upper), max_bytes)]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=asyncio.subprocess.DEVNULL,
            env=engine_environment(),
        )
        try:
            return await process.wait() in TAR_DONE
        except BaseException:
            await end(process)
            raise

    return await write_whole(target, write)


async def restore(
    engine: Engine, fit: Adjustment, name: str, state: Path, enter: Sequence[str] | None
) -> None:
    """Put saved changes into a container that was made and has not started."""
    if enter is None:
        raise SandboxError(f"only root can put saved changes into a container of {engine.name}")
    asked = [engine.program, *fit.options, "inspect", "--format", "{{.GraphDriver.Data.UpperDir}}", name]
    said = await call(asked)
    upper = said.out.strip()
    if said.code or not upper.startswith("/"):
        raise SandboxError(f"{engine.name} does not say where the changes of {name} go: {said.reason}")
    opaque = "user.overlay.opaque" if enter else "trusted.overlay.opaque"
    command = [*enter, sys.executable, "-I", "-S", "-B", unpack.__file__, upper, opaque]
    with state.open("rb") as archive:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=archive,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=engine_environment(),
        )
        try:
            _, words = await process.communicate()
        except BaseException:
            await end(process)
            raise
    if process.returncode:
        raise SandboxError(f"cannot unpack {state}: {words.decode(errors='replace').strip()[-500:]}")


def lower(upper: Path) -> Lower | None:
    """The layers below a folder of changes, as the engines write them down beside it."""
    with suppress(OSError):
        text = (upper.parent / "lower").read_text()
        layers = [(upper.parents[1] / each).resolve() for each in text.strip().split(":") if each]
        return Lower(layers) if layers else None
    return None
