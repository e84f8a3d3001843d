"""Who owns which sandboxes, and the removal of what a killed owner left.

Each process of Proctor has one folder named after its process id and start time. Processes of a dead owner
end by themselves, and their mounts with them; folders and control groups are what remains to be removed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from proctor.errors import SandboxError
from proctor.processes import start_ticks

_log = logging.getLogger("proctor.sandbox")
OWNER_FILE = "owner.json"
_EMPTY_S = 5.0


def boot_id() -> str:
    """Which boot of the machine this is."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def owner_name() -> str:
    """The name of this process's folder."""
    return f"{os.getpid()}-{start_ticks(os.getpid())}"


def write_owner(folder: Path, *, keeper: int | None, cgroups: list[str]) -> None:
    """Say who owns a folder and what belongs to it elsewhere."""
    owner = {
        "pid": os.getpid(),
        "start_time": start_ticks(os.getpid()),
        "boot_id": boot_id(),
        "keeper": keeper,
        "keeper_start_time": start_ticks(keeper) if keeper else None,
        "cgroups": cgroups,
    }
    waiting = folder / f"{OWNER_FILE}.new"
    waiting.write_text(json.dumps(owner))
    waiting.replace(folder / OWNER_FILE)


def orphans(state_dir: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Folders whose owner is dead, with what they say about it."""
    found = []
    for folder in sorted(state_dir.iterdir()) if state_dir.is_dir() else ():
        owner = _read_owner(folder)
        pid, began = owner.get("pid"), owner.get("start_time")
        if not owner:
            name, _, ticks = folder.name.partition("-")
            if not (name.isdigit() and ticks.isdigit()):
                continue
            pid, began = int(name), int(ticks)
        same_boot = owner.get("boot_id", boot_id()) == boot_id()
        if same_boot and isinstance(pid, int) and start_ticks(pid) == began:
            continue
        found.append((folder, owner if same_boot else {}))
    return found


async def reap(state_dir: Path, remove: Callable[[str, int], Awaitable[None]]) -> tuple[str, ...]:
    """Remove what dead owners left; `remove(name, folder)` removes a tree whoever owns its files."""
    done: list[str] = []
    for folder, owner in orphans(state_dir):
        keeper, began = owner.get("keeper"), owner.get("keeper_start_time")
        if isinstance(keeper, int) and began is not None and start_ticks(keeper) == began:
            with contextlib.suppress(OSError):
                os.kill(keeper, signal.SIGKILL)
                done.append(f"process {keeper}")
            _wait_gone(keeper, began)
        for path in owner.get("cgroups", ()):
            done += [f"control group {each}" for each in remove_cgroup(Path(path))]
        parent = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            await remove(folder.name, parent)
        except SandboxError as error:
            _log.debug("%s: %s", folder, error)
        finally:
            os.close(parent)
        if folder.exists():
            # Killed before it could give a folder to the keeper's id: then it is still this account's.
            shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            _log.warning("what a killed run left cannot be removed, the next start tries again: %s", folder)
        else:
            done.append(f"folder {folder}")
    return tuple(done)


def sweep_cgroups(parents: Iterable[Path]) -> tuple[str, ...]:
    """Remove groups of dead owners beside ours, also of those whose folder is gone or elsewhere."""
    done: list[str] = []
    for folder in sorted({each for parent in parents for each in parent.parent.glob("proctor-*-*")}):
        _, pid, ticks = folder.name.split("-", 2)
        if pid.isdigit() and ticks.isdigit() and start_ticks(int(pid)) != int(ticks):
            done += [f"control group {each}" for each in remove_cgroup(folder)]
    return tuple(done)


def remove_cgroup(folder: Path) -> list[str]:
    """Kill what is in a group of ours and below, and remove the groups."""
    if not folder.is_dir() or not folder.name.startswith("proctor-"):
        return []
    removed = []
    deadline = time.monotonic() + _EMPTY_S
    for below in sorted((each for each in folder.rglob("*") if each.is_dir()), reverse=True):
        removed += _empty_and_remove(below, deadline)
    return removed + _empty_and_remove(folder, deadline)


def _empty_and_remove(folder: Path, deadline: float) -> list[str]:
    while folder.is_dir():
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                return []
            with contextlib.suppress(OSError):
                for pid in (folder / "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.01)
    return [str(folder)]


def _wait_gone(pid: int, began: int) -> None:
    deadline = time.monotonic() + _EMPTY_S
    while start_ticks(pid) == began and time.monotonic() < deadline:
        time.sleep(0.01)


def _read_owner(folder: Path) -> dict[str, Any]:
    try:
        owner = json.loads((folder / OWNER_FILE).read_text())
    except (OSError, ValueError):
        return {}
    return owner if isinstance(owner, dict) else {}
