"""What the kernel knows of a running container: its control groups, and the folder of its changes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from proctor.errors import SandboxError
from proctor.sandbox.base import Limits
from proctor.sandbox.container.engine import call
from proctor.sandbox.limits import Group

_CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")
_MEASURE_S = 60.0
_SLACK_BYTES = 1 << 20
"""The kernel charges memory in batches, so a full group may be short of its limit by a little."""


def group_of(pid: int, proc: Path = Path("/proc")) -> Group | None:
    """The control groups of a process, as far as they can be read here."""
    try:
        mounted = [line.split() for line in (proc / "self/mounts").read_text().splitlines()]
        ours, paths = _paths(proc / "self/cgroup"), _paths(proc / str(pid) / "cgroup")
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


def _paths(file: Path) -> dict[str, str]:
    """Controller → group; the empty name is the unified hierarchy."""
    lines = [line.split(":", 2) for line in file.read_text().splitlines()]
    return {each: path for _, names, path in lines for each in names.split(",")}


def _below(root: str, path: str) -> Path | None:
    """A group other than the root, whose limits would be everyone's."""
    folder = Path(root) / path.lstrip("/")
    return folder if path.strip("/") and ".." not in path and folder.is_dir() else None


def used(group: Group) -> dict[str, Any]:
    """What a container used so far; keys as in `SandboxInfo.ledger`."""
    found = group.usage()
    if group.version == 1:
        # Engines limit memory and swap together, and then the kernel counts no failures: the peak tells.
        limit = _read(group, "memory", "memory.limit_in_bytes").strip()
        if limit.isdigit() and found.get("peak_memory_bytes", 0) >= int(limit) - _SLACK_BYTES:
            found["host_oom"] = False
    return found


def enforcement(limits: Limits, group: Group | None, *, network: str, storage: bool) -> dict[str, str]:
    """For each limit that was asked for: how it holds, as read back from the kernel, or why not."""
    found = {"network": network}
    has = _in_force(group) if group else {}
    through = f"cgroup v{group.version}" if group else ""
    if limits.cpus is not None:
        found["cpus"] = through if has.get("cpu") else "not enforced: the engine set no cpu limit here"
    if limits.memory_bytes is not None:
        found["memory"] = through if has.get("memory") else "rlimit: data size of each process"
    if limits.pids is not None:
        found["pids"] = through if has.get("pids") else "rlimit: processes of each user inside"
    if limits.storage_bytes is not None:
        whole = (
            "watched: all processes are killed when it is exceeded"
            if storage
            else "not enforced as a whole: the container's changes cannot be measured here"
        )
        found["storage"] = f"{whole}; rlimit: size of each file"
    return found


def _in_force(group: Group) -> dict[str, bool]:
    two = group.version == 2
    files = {
        "memory": "memory.max" if two else "memory.limit_in_bytes",
        "pids": "pids.max",
        "cpu": "cpu.max" if two else "cpu.cfs_quota_us",
    }
    found = {}
    for name, file in files.items():
        text = _read(group, name, file).split()
        found[name] = bool(text) and text[0].isdigit() and int(text[0]) < 1 << 60
    return found


def _read(group: Group, controller: str, file: str) -> str:
    folder = group.folders.get(controller)
    try:
        return Path(folder, file).read_text() if folder else ""
    except OSError:
        return ""


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


async def disk_usage(places: Sequence[Path], enter: Sequence[str]) -> tuple[int, int]:
    """Bytes and inodes of all these together; `enter` is what may read it all."""
    counts = []
    for unit in ("--block-size=1", "--inodes"):
        command = [*enter, "du", "--summarize", "--total", "--one-file-system", unit, "--", *map(str, places)]
        counts.append(asyncio.create_task(call(command, timeout_s=_MEASURE_S)))
    said = await asyncio.gather(*counts)
    totals = [each.out.splitlines()[-1].split()[0] for each in said if each.out.strip()]
    if len(totals) != len(counts) or not all(total.isdigit() for total in totals):
        raise SandboxError(f"cannot measure {places[0]}: {said[0].reason}")
    return int(totals[0]), int(totals[1])
