"""Who owns which sandboxes, and the removal of what a killed owner left.

Each process of Proctor has one folder with its own name (`proctor.owner`), and holds a lock beside it and one
on each control group. Processes of a dead owner end by themselves, and their mounts with them; folders and
control groups are what remains to be removed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from proctor import owner
from proctor.disk import opened
from proctor.errors import SandboxError
from proctor.processes import start_ticks

_log = logging.getLogger("proctor.sandbox")
OWNER_FILE = "owner.json"
_LOCK = ".lock"
_EMPTY_S = 5.0


def lock_of(folder: Path) -> Path:
    """The file that the owner of a folder holds locked while it lives."""
    return folder.with_name(f"{folder.name}{_LOCK}")


def write_owner(folder: Path, *, keeper: int | None, cgroups: list[str]) -> None:
    """Say what belongs to a folder of ours elsewhere."""
    found = {
        "place": owner.place_id(),
        "boot_id": owner.boot_id(),
        "keeper": keeper,
        "keeper_start_time": start_ticks(keeper) if keeper else None,
        "cgroups": cgroups,
    }
    waiting = folder / f"{OWNER_FILE}.new"
    waiting.write_text(json.dumps(found))
    waiting.replace(folder / OWNER_FILE)


def orphans(state_dir: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Folders whose owner is dead, with what they say about it."""
    found = []
    for folder in sorted(state_dir.iterdir()) if state_dir.is_dir() else ():
        if not owner.owner_in(folder.name) or not folder.is_dir():
            continue
        said = _read_owner(folder)
        lock = lock_of(folder)
        same_boot = said.get("boot_id", owner.boot_id()) == owner.boot_id()
        if not owner.lives(folder.name, lock) or (not same_boot and not lock.exists()):
            found.append((folder, said if same_boot else {}))
    return found


def forget_locks(state_dir: Path) -> None:
    """Remove the locks of dead owners whose folder is gone."""
    for lock in state_dir.glob(f"*{_LOCK}") if state_dir.is_dir() else ():
        name = lock.name.removesuffix(_LOCK)
        if not (state_dir / name).exists() and owner.owner_in(name) and not owner.lives(name, lock):
            with owner.held_if_free(lock) as free:
                if free:
                    lock.unlink(missing_ok=True)


async def reap(state_dir: Path, remove: Callable[[str, int], Awaitable[None]]) -> tuple[str, ...]:
    """Remove what dead owners left; `remove(name, folder)` removes a tree, whatever users own its files."""
    done: list[str] = []
    for folder, said in orphans(state_dir):
        done += _end_keeper(said)
        for path in said.get("cgroups", ()):
            done += _remove_dead_group(Path(path))
        with opened(state_dir) as parent:
            try:
                await remove(folder.name, parent)
            except SandboxError as error:
                _log.debug("%s: %s", folder, error)
        if folder.exists():
            # Killed before it could give a folder to the keeper's id: then it is still this account's.
            shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            _log.warning(
                ("leftovers of a killed run cannot be removed, the next start will try again: %s"), folder
            )
        else:
            done.append(f"folder {folder}")
    forget_locks(state_dir)
    return tuple(done)


def _end_keeper(said: Mapping[str, Any]) -> list[str]:
    """Kill the keeper of a dead owner, if its process id can be seen here and is still its own."""
    keeper, began = said.get("keeper"), said.get("keeper_start_time")
    seen = owner.sees_own_ids() and said.get("place", owner.place_id()) == owner.place_id()
    if not seen or not isinstance(keeper, int) or began is None or start_ticks(keeper) != began:
        return []
    done = []
    with contextlib.suppress(OSError):
        os.kill(keeper, signal.SIGKILL)
        done.append(f"process {keeper}")
    _wait_gone(keeper, began)
    return done


def sweep_cgroups(parents: Iterable[Path]) -> tuple[str, ...]:
    """Remove groups of dead owners beside ours, also of those whose folder is gone or elsewhere."""
    done: list[str] = []
    for folder in sorted({each for parent in parents for each in parent.parent.glob("proctor-*-*")}):
        name = folder.name.removeprefix("proctor-")
        if owner.owner_in(name) and not owner.lives(name, folder):
            done += _remove_dead_group(folder)
    return tuple(done)


def _remove_dead_group(folder: Path) -> list[str]:
    """Remove a group that no process holds; it is held meanwhile, so that no new owner takes it up."""
    with owner.held_if_free(folder) as free:
        return [f"control group {each}" for each in remove_cgroup(folder)] if free else []


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
                for pid in map(int, (folder / "cgroup.procs").read_text().split()):
                    if pid > 0:  # 0 stands for a process of another PID namespace, and for our own group
                        os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
    return [str(folder)]


def _wait_gone(pid: int, began: int) -> None:
    deadline = time.monotonic() + _EMPTY_S
    while start_ticks(pid) == began and time.monotonic() < deadline:
        time.sleep(0.01)


def _read_owner(folder: Path) -> dict[str, Any]:
    try:
        said = json.loads((folder / OWNER_FILE).read_text())
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}
