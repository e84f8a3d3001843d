"""What works here and why not: quick looks for `auto`, and a real sandbox for `proctor doctor`."""

from __future__ import annotations

import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import SandboxError
from proctor.sandbox import limits, seccomp
from proctor.sandbox.base import Limits, Root, SandboxRequest
from proctor.sandbox.bubblewrap import Bubblewrap
from proctor.sandbox.userns import find_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing looked at. `needed`: without it the back end does not work at all."""

    name: str
    ok: bool
    detail: str
    needed: bool = False


def obstacle(proc: Path = Path("/proc")) -> str:
    """Why bubblewrap sandboxes cannot work here, as far as a quick look can tell; empty when they may."""
    ordinary = os.geteuid() != 0
    switches = {
        "sys/user/max_user_namespaces": (0, "user namespaces are switched off", True),
        "sys/kernel/unprivileged_userns_clone": (0, "user namespaces are for root only", ordinary),
        "sys/kernel/apparmor_restrict_unprivileged_userns": (
            1,
            "AppArmor denies user namespaces to ordinary programs; set it to 0 or add a profile",
            ordinary,
        ),
    }
    if not sys.platform.startswith("linux"):
        return "it needs Linux"
    if not _compiler() and not shutil.which("bwrap"):
        return "neither a C compiler nor bubblewrap is installed"
    for name, (closed, meaning, applies) in switches.items():
        if applies and _number(proc / name) == closed:
            return f"{meaning} (sysctl {name.removeprefix('sys/').replace('/', '.')} is {closed})"
    try:
        find_ids()
    except SandboxError as error:
        return str(error)
    return ""


async def probe(home: Path) -> tuple[Check, ...]:
    """Everything that matters to bubblewrap sandboxes, the last being a sandbox that was really made."""
    problem = obstacle()
    checks = [
        Check(name="user namespaces", ok=not problem, detail=problem or "may be made", needed=True),
        Check(
            name="keeper",
            ok=bool(_compiler()),
            detail=f"built with {_compiler()}"
            if _compiler()
            else "no C compiler: bubblewrap's own, slower way is used",
        ),
        Check(
            name="bubblewrap",
            ok=bool(shutil.which("bwrap")),
            detail=shutil.which("bwrap") or "not installed: needed only without a C compiler",
        ),
        Check(
            name="system call filter",
            ok=seccomp.supported(),
            detail="built for this processor" if seccomp.supported() else "unknown processor",
            needed=True,
        ),
        _cgroup_check(),
        Check(
            name="network 'public'",
            ok=bool(shutil.which("slirp4netns")),
            detail=shutil.which("slirp4netns") or "slirp4netns is not installed",
        ),
    ]
    checks.append(await _try_one(home, problem))
    return tuple(checks)


def _compiler() -> str:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang") or ""


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _cgroup_check() -> Check:
    found = limits.find_cgroups(f"proctor-probe-{os.getpid()}")
    if found is None:
        why = "none writable; limits fall back to rlimits (try systemd-run --user --scope -p Delegate=yes)"
        return Check(name="control groups", ok=False, detail=why)
    limits.remove_parents(found)
    have = ", ".join(sorted(found.parents))
    lack = "; ".join(found.missing.values())
    detail = f"v{found.version}: {have}" + (f" ({lack})" if lack else "")
    return Check(name="control groups", ok=not found.missing, detail=detail)


async def _try_one(home: Path, problem: str) -> Check:
    name = "a sandbox of the host's own system"
    if problem:
        return Check(name=name, ok=False, detail="not tried", needed=True)
    backend = Bubblewrap(home)
    try:
        sandbox = backend.sandbox(SandboxRequest(name="probe", root=Root(host=True), limits=Limits(pids=64)))
        started = time.perf_counter()
        await sandbox.start()
        result = await sandbox.exec(["true"], timeout_s=20)
        await sandbox.stop()
        took_ms = (time.perf_counter() - started) * 1e3
    except (SandboxError, OSError) as error:
        return Check(name=name, ok=False, detail=str(error), needed=True)
    finally:
        await backend.close()
    if result.exit_code:
        said = result.stderr.decode(errors="replace").strip()
        return Check(name=name, ok=False, detail=f"`true` failed in it: {said}", needed=True)
    return Check(name=name, ok=True, detail=f"started, used and stopped in {took_ms:.0f} ms", needed=True)
