"""Limits on what the inside may use: control groups where they are writable, resource limits otherwise.

Every limit says how it is enforced here, or that it is not: a result under an unenforced limit is marked.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor import owner
from proctor.disk import opened, write_all
from proctor.errors import SandboxError
from proctor.sandbox.base import Limits

_PERIOD_US = 100_000
_MOST_BYTES = 4096
"""More than any file of a group has that is read here."""
_CONTROLLERS = ("memory", "pids", "cpu")
_COUNTER = "cpuacct"
"""In version 1 a hierarchy of its own counts CPU time; in version 2 every group does."""
_OPTIONAL = ("memory.swap.max", "memory.swappiness")
"""Absent where the kernel counts no swap."""
_TRIES = 100
WATCHED = "watched: all processes are killed when it is exceeded"
SPARE_PIDS = 4
"""Room for the init and its supervisors, which live in the same group."""


def free_memory_bytes() -> int | None:
    """What programs could still use on this machine."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        with opened("/proc/meminfo", os.O_RDONLY) as fd:
            lines = os.read(fd, _MOST_BYTES).splitlines()
        return int(next(line for line in lines if line.startswith(b"MemAvailable:")).split()[1]) << 10
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cgroups:
    """Where control groups can be made: one folder for v2, one per controller for v1."""

    version: int
    parents: Mapping[str, Path]
    """Controller → folder in which ours may be made."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Controller → why it cannot be used."""

    def create(self, name: str, limits: Limits) -> Group:
        """Make the groups of one sandbox and set its limits. Where ours were removed, they are made again."""
        try:
            return self._create(name, limits)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _cannot(error) from error
        try:
            for parent in dict.fromkeys(self.parents.values()):
                _make(parent, _enabled(self.parents) if self.version == 2 else "")
            return self._create(name, limits)
        except OSError as error:
            raise _cannot(error) from error

    def _create(self, name: str, limits: Limits) -> Group:
        folders = {
            controller: f"{parent}/{name}"
            for controller, parent in self.parents.items()
            if controller != "cpu" or limits.cpus is not None or self.version == 2
        }
        group = Group(version=self.version, folders=folders)
        try:
            for folder in set(folders.values()):
                os.mkdir(folder)  # noqa: PTH102 - several per sandbox
            for controller, folder in folders.items():
                for file, value in _settings(self.version, controller, limits):
                    place = f"{folder}/{file}"
                    if file not in _OPTIONAL or os.path.exists(place):  # noqa: PTH110 - several per sandbox
                        _set(place, value)
        except OSError:
            group.remove()
            raise
        return group


def _cannot(error: OSError) -> SandboxError:
    return SandboxError(f"cannot set a limit through control groups: {error}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The control groups of one sandbox."""

    version: int
    folders: Mapping[str, str]
    memory_free_bytes: int | None = field(default_factory=free_memory_bytes)
    """What was free on the host when the sandbox began: shows who took most of it."""

    def open_procs(self) -> list[int]:
        """Descriptors through which a process enters the groups."""
        opened: list[int] = []
        try:
            for folder in dict.fromkeys(self.folders.values()):
                place = f"{folder}/cgroup.procs"
                opened.append(os.open(place, os.O_WRONLY | os.O_CLOEXEC))
        except OSError as error:
            for fd in opened:
                os.close(fd)
            raise _cannot(error) from error
        return opened

    def oom_kills(self) -> int:
        """Processes killed for memory so far."""
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        return _keyed(self.read("memory", name)).get("oom_kill", 0)

    def usage(self) -> dict[str, Any]:
        """What the kernel counted; keys as in `SandboxInfo.ledger`."""
        found: dict[str, Any] = {"oom_kills": self.oom_kills()}
        peak = self.read("memory", "memory.peak" if self.version == 2 else "memory.max_usage_in_bytes")
        if peak.strip().isdigit():
            found["peak_memory_bytes"] = int(peak)
        # Killed although its own limit was never reached: the host ran out, not the task.
        if self.version == 2:
            reached = _keyed(self.read("memory", "memory.events")).get("oom", 0)
        else:
            reached = int(self.read("memory", "memory.failcnt").strip() or 0)
        found["host_oom"] = bool(found["oom_kills"] and not reached)
        if found["host_oom"]:
            found["memory_free_bytes"] = self._free_at_start()
        if (throttled_s := self.throttled_s()) is not None:
            found["throttled_s"] = throttled_s
        if (cpu_s := self.cpu_s()) is not None:
            found["cpu_s"] = cpu_s
        return found

    def memory_bytes(self) -> int | None:
        """What it uses now; None where that is not counted."""
        used = self.read("memory", "memory.current" if self.version == 2 else "memory.usage_in_bytes").strip()
        return int(used) if used.isdigit() else None

    def throttled_s(self) -> float | None:
        """How long it had to wait for its share of the processors; None where it has none."""
        stat = _keyed(self.read("cpu", "cpu.stat"))
        if "throttled_usec" in stat:
            return stat["throttled_usec"] / 1e6
        return stat["throttled_time"] / 1e9 if "throttled_time" in stat else None

    def cpu_s(self) -> float | None:
        """CPU time of all that ran in the group, also of what was killed; None where it is not counted."""
        if self.version == 2:
            any_one = next(iter(self.folders), "")  # all controllers have the same folder
            used_us = _keyed(self.read(any_one, "cpu.stat")).get("usage_usec")
            return None if used_us is None else used_us / 1e6
        used_ns = self.read(_COUNTER, "cpuacct.usage").strip()
        return int(used_ns) / 1e9 if used_ns.isdigit() else None

    def _free_at_start(self) -> int | None:
        """What was free when it began, at most what the groups around this one allow."""
        name = "memory.max" if self.version == 2 else "memory.limit_in_bytes"
        found = [] if self.memory_free_bytes is None else [self.memory_free_bytes]
        for parent in Path(self.folders["memory"]).parents:
            with contextlib.suppress(OSError, ValueError):
                found.append(int((parent / name).read_text()))  # 'max' is no limit
        return min(found, default=None)

    def remove(self) -> bool:
        """Remove the groups, which must be empty; True when none is left."""
        left = 0
        for folder in set(self.folders.values()):
            try:
                os.rmdir(folder)  # noqa: PTH106 - several per sandbox
            except FileNotFoundError:
                continue
            except OSError:
                left += 1
        return not left

    def read(self, controller: str, file: str) -> str:
        """What one file of the group says; empty when it cannot be read."""
        folder = self.folders.get(controller)
        if folder is None:
            return ""
        try:
            with opened(f"{folder}/{file}", os.O_RDONLY) as fd:
                return os.read(fd, _MOST_BYTES).decode()
        except OSError:
            return ""


def _set(place: str, value: str) -> None:
    with opened(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
        write_all(fd, value.encode())


def enforcement(limits: Limits, cgroups: Cgroups | None) -> dict[str, str]:
    """For each limit that was asked for: how it holds with these control groups, or why not."""
    why = "no writable control groups"
    return how_enforced(
        limits,
        network=f"network namespace: {limits.network}",
        version=cgroups.version if cgroups else 0,
        held=cgroups.parents if cgroups else (),
        no_cpu=cgroups.missing.get("cpu", why) if cgroups else why,
    )


def how_enforced(
    limits: Limits,
    *,
    network: str,
    version: int,
    held: Collection[str],
    no_cpu: str,
    storage: str = WATCHED,
) -> dict[str, str]:
    """For each limit that was asked for: how it holds, or why not. `held`: controllers that hold theirs."""
    through = f"cgroup v{version}"
    found = {"network": network}
    if limits.cpus is not None:
        found["cpus"] = through if "cpu" in held else f"not enforced: {no_cpu}"
    if limits.memory_bytes is not None:
        found["memory"] = through if "memory" in held else "rlimit: data size of each process"
    if limits.pids is not None:
        found["pids"] = through if "pids" in held else "rlimit: processes of each user inside"
    if limits.storage_bytes is not None:
        found["storage"] = f"{storage}; rlimit: size of each file"
    return found


def rlimit_fields(limits: Limits, held: Collection[str]) -> list[str]:
    """Limits of each process, as the init reads them; they stand in where no control group holds one."""
    found = ["o65536"]
    if limits.pids is not None and "pids" not in held:
        found.append(f"p{limits.pids}")
    if limits.memory_bytes is not None and "memory" not in held:
        found.append(f"m{limits.memory_bytes}")
    if limits.storage_bytes is not None:
        found.append(f"z{limits.storage_bytes}")
    return found


def find_cgroups(
    name: str, *, mounts: Path = Path("/proc/self/mounts"), own: Path = Path("/proc/self/cgroup")
) -> Cgroups | None:
    """Where this process may make control groups; `name` is the folder of all of ours."""
    try:
        mounted = [line.split() for line in mounts.read_text().splitlines()]
        paths = group_paths(own.read_text())
    except OSError:
        return None
    for _, folder, kind, *_ in mounted:
        if kind == "cgroup2" and (found := _version_2(Path(folder), paths.get("", "/"), name)):
            return found
    return _version_1(mounted, paths, name)


def remove_parents(cgroups: Cgroups) -> None:
    """Remove the folders that `find_cgroups` made."""
    for parent in set(cgroups.parents.values()):
        with contextlib.suppress(OSError):
            parent.rmdir()
        owner.release(parent)


def _make(folder: Path, enable: str) -> None:
    """Make a group that holds those of our sandboxes, and hold it: others remove what nobody holds."""
    for _ in range(_TRIES):
        folder.mkdir(exist_ok=True)
        try:
            if owner.hold(folder):
                break
        except FileNotFoundError:
            continue  # one who had found it unheld has removed it
    if enable:
        (folder / "cgroup.subtree_control").write_text(enable)


def _enabled(controllers: Iterable[str]) -> str:
    return " ".join(f"+{each}" for each in controllers)


def group_paths(text: str) -> dict[str, str]:
    """Controller → group of a process; the empty name is the unified hierarchy."""
    paths = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def _version_1(mounted: list[list[str]], paths: Mapping[str, str], name: str) -> Cgroups | None:
    parents: dict[str, Path] = {}
    missing: dict[str, str] = {}
    for controller in (*_CONTROLLERS, _COUNTER):
        roots = [Path(row[1]) for row in mounted if row[2] == "cgroup" and controller in row[3].split(",")]
        if not roots or controller not in paths:
            missing[controller] = f"no control group hierarchy for {controller}"
            continue
        try:
            folder = roots[0] / paths[controller].lstrip("/") / name
            if folder not in parents.values():
                _make(folder, "")
            parents[controller] = folder
        except OSError as error:
            missing[controller] = f"control group {controller}: {error.strerror}"
    return Cgroups(version=1, parents=parents, missing=missing) if parents else None


def _version_2(root: Path, path: str, name: str) -> Cgroups | None:
    """A group below the root of the hierarchy, for root, or below our own when it was delegated to us."""
    own = root / path.lstrip("/")
    for base in dict.fromkeys([root, own] if os.geteuid() == 0 else [own]):
        try:
            controllers = (base / "cgroup.controllers").read_text().split()
            wanted = [each for each in _CONTROLLERS if each in controllers]
            if not wanted:
                continue
            enable = _enabled(wanted)
            if base != root:
                _move_to_leaf(base)
            (base / "cgroup.subtree_control").write_text(enable)
            folder = base / name
            _make(folder, enable)
        except OSError:
            continue
        missing = {each: "not delegated" for each in _CONTROLLERS if each not in wanted}
        return Cgroups(version=2, parents=dict.fromkeys(wanted, folder), missing=missing)
    return None


def _move_to_leaf(group: Path) -> None:
    """Only a leaf may hold processes once its parent has controllers: ours go to one."""
    leaf = group / "proctor-self"
    leaf.mkdir(exist_ok=True)
    for pid in (group / "cgroup.procs").read_text().split():
        with contextlib.suppress(OSError):
            (leaf / "cgroup.procs").write_text(pid)


def _settings(version: int, controller: str, limits: Limits) -> list[tuple[str, str]]:
    if controller == "memory" and limits.memory_bytes is not None:
        value = str(limits.memory_bytes)
        if version == 2:
            return [("memory.max", value), ("memory.swap.max", "0")]
        return [("memory.limit_in_bytes", value), ("memory.swappiness", "0")]
    if controller == "pids" and limits.pids is not None:
        return [("pids.max", str(limits.pids + SPARE_PIDS))]
    if controller == "cpu" and limits.cpus is not None:
        quota = max(1000, int(limits.cpus * _PERIOD_US))
        if version == 2:
            return [("cpu.max", f"{quota} {_PERIOD_US}")]
        return [("cpu.cfs_period_us", str(_PERIOD_US)), ("cpu.cfs_quota_us", str(quota))]
    return []


def _keyed(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
