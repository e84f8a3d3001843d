"""What the numbers were measured on: machine, system, Python, packages, and the state of the source tree.

Reads files and asks git once per run. What cannot be found out is None, never an error.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

_GIT_TIMEOUT_S = 10.0
_ASKING_TIMEOUT_S = 60.0
_DIST_INFO = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)\.(?:dist|egg)-info")


def capture_environment(python: str | None = None) -> dict[str, Any]:
    """Everything about this process and its machine that a reader of the numbers may ask for.

    `python` is the interpreter that measures, if it is not the one of this process.
    """
    system, cpu = os.uname(), _cpuinfo()
    own = {"python": _python(), "packages": dict(sorted(packages()))}
    return {
        "hostname": system.nodename,
        "platform": f"{system.sysname} {system.release} {system.machine}",
        "kernel": system.release,
        "distribution": _distribution(),
        "machine": system.machine,
        **_cpu(cpu),
        "memory_bytes": _meminfo("MemTotal"),
        "memory_available_bytes": _meminfo("MemAvailable"),
        "load": [round(each, 2) for each in os.getloadavg()],
        "container": _container(),
        "virtual_machine": "hypervisor" in cpu.get("flags", "").split(),
        "cpu_quota": _cpu_quota(),
        **(_of_another(python) if python else own),
    }


@lru_cache(maxsize=1)
def environment_at(second: int, python: str | None) -> dict[str, Any]:  # noqa: ARG001 - what it is kept by
    """The machine as it is in this second: a server makes many runs in one."""
    return capture_environment(python)


def _of_another(python: str) -> dict[str, Any]:
    """What another interpreter says of itself; only its path, when it does not say."""
    from proctor.processes import OF_PYTHON, host_environment  # not there where this file is the program

    try:
        said = subprocess.run(
            [python, "-P", __file__],
            capture_output=True,
            timeout=_ASKING_TIMEOUT_S,
            check=True,
            text=True,
            env=host_environment(*OF_PYTHON),
        )
        found: dict[str, Any] = json.loads(said.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return {"python": {"executable": python}, "packages": {}}
    return found


def capture_vcs(path: Path) -> dict[str, Any]:
    """Commit, branch and whether the tree has changes; all None where there is no repository."""
    from proctor.processes import host_environment

    unknown: dict[str, Any] = {"commit": None, "branch": None, "dirty": None}
    try:
        answer = subprocess.run(
            ["git", "-C", str(path), "status", "--porcelain=v2", "--branch"],
            capture_output=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
            text=True,
            errors="replace",
            # Looking at a tree must never lock it: someone may be committing right now.
            env=host_environment("GIT_*", extra={"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}),
        )
    except (OSError, subprocess.TimeoutExpired):
        return unknown
    if answer.returncode:
        return unknown
    lines = answer.stdout.splitlines()
    head = dict(
        line[2:].split(" ", 1) for line in lines if line.startswith("# branch.") and line.count(" ") > 1
    )
    commit = head.get("branch.oid")
    return {
        "commit": None if commit in {None, "(initial)"} else commit,
        "branch": None if head.get("branch.head") in {None, "(detached)"} else head["branch.head"],
        "dirty": any(not line.startswith("#") for line in lines),
    }


def packages() -> Sequence[tuple[str, str]]:
    """Installed packages and versions, from the names of their metadata folders: no file is parsed.

    A process looks once for each path it imports from: what it has imported does not change after that.
    """
    return _packages(tuple(sys.path))


@cache
def _packages(folders: tuple[str, ...]) -> Sequence[tuple[str, str]]:
    return tuple(_installed(folders))


def _installed(folders: Iterable[str]) -> Iterator[tuple[str, str]]:
    seen = set()
    for folder in folders:
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208 - names only, in every folder of the path
        except OSError:
            continue
        for each in names:
            found = _DIST_INFO.fullmatch(each)
            name = found["name"].replace("_", "-").lower() if found else ""
            if found and name not in seen:
                seen.add(name)
                yield name, found["version"]


def processor(info: Mapping[str, str] | None = None) -> str:
    """The processor's model, as far as the system tells."""
    info = _cpuinfo() if info is None else info
    for name in ("model name", "Processor", "cpu model"):
        if found := info.get(name):
            return found
    return platform.machine()


def _cpu(info: Mapping[str, str]) -> dict[str, Any]:
    allowed = len(os.sched_getaffinity(0))
    folder = "/sys/devices/system/cpu"
    return {
        "cpu_model": processor(info),
        "cores": os.cpu_count(),
        "cores_allowed": allowed,
        "cpu_mhz": _number(info.get("cpu MHz")),
        "cpu_cache": info.get("cache size"),
        "governor": _read(f"{folder}/cpu0/cpufreq/scaling_governor"),
        "turbo": _turbo(folder),
        "smt": _read(f"{folder}/smt/active"),
    }


def _turbo(folder: str) -> bool | None:
    boost, off = _read(f"{folder}/cpufreq/boost"), _read(f"{folder}/intel_pstate/no_turbo")
    if boost is not None:
        return boost == "1"
    return off == "0" if off is not None else None


def _cpuinfo() -> dict[str, str]:
    """The first processor's lines."""
    found: dict[str, str] = {}
    for line in (_read("/proc/cpuinfo") or "").partition("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    return found


def _meminfo(name: str) -> int | None:
    for line in (_read("/proc/meminfo") or "").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None


@cache
def _distribution() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _container() -> str | None:
    """Which container this is, as far as it can be detected from inside."""
    if Path("/run/.containerenv").exists():
        return "podman"
    if Path("/.dockerenv").exists():
        return "docker"
    named = os.environ.get("container") or (_read("/run/systemd/container") or "")  # noqa: SIM112 - its name
    control = _read("/proc/1/cgroup") or ""
    for word in ("kubepods", "docker", "libpod", "lxc", "containerd"):
        if word in control:
            return word
    return named or None


def _cpu_quota() -> float | None:
    """CPUs that the control group allows; None without a limit."""
    limit = (_read("/sys/fs/cgroup/cpu.max") or "").split()
    if len(limit) == 2 and limit[0].isdigit():
        return int(limit[0]) / int(limit[1])
    quota = _number(_read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"))
    period = _number(_read("/sys/fs/cgroup/cpu/cpu.cfs_period_us"))
    return quota / period if quota and period and quota > 0 else None


def _python() -> dict[str, Any]:
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "compiler": platform.python_compiler(),
        "build": " ".join(platform.python_build()),
        "executable": sys.executable,
        "optimize": sys.flags.optimize,
        "hash_seed": os.environ.get("PYTHONHASHSEED", "0 in measured processes"),
        "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
        "optimized_build": "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""),
    }


def _read(path: str) -> str | None:
    try:
        with open(path, errors="replace") as file:  # noqa: PTH123 - many small files, for every run
            return file.read().strip()
    except OSError:
        return None


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"python": _python(), "packages": dict(sorted(packages()))}))
