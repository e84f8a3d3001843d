"""The ids a sandbox may use: 65,536 subordinate ones, none of them the caller's, none of them root's.

An outer user namespace maps them as 0…65535, and the keeper itself as 65536. As root, Proctor takes a range
that no account owns and the keeper becomes an id of that range before it does anything else.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import SandboxError
from proctor.sandbox.programs import missing_program

IDS = 65_536
ROOT_BASE = 2_000_000_000
"""First id taken as root when /etc/subuid gives root no range; beyond every range that distributions use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ids:
    """A range of user and group ids for the inside, and who the keeper is."""

    first_uid: int
    first_gid: int
    keeper_uid: int
    keeper_gid: int
    as_root: bool

    def maps(self) -> tuple[list[int], list[int]]:
        """The two id maps of the outer user namespace, flat: inside, outside, count, …."""
        return (
            [0, self.first_uid, IDS, IDS, self.keeper_uid, 1],
            [0, self.first_gid, IDS, IDS, self.keeper_gid, 1],
        )


def find_ids(
    *,
    uid: int | None = None,
    gid: int | None = None,
    subuid: Path = Path("/etc/subuid"),
    subgid: Path = Path("/etc/subgid"),
) -> Ids:
    """The range for this account; SandboxError says how to get one."""
    uid = os.geteuid() if uid is None else uid
    gid = os.getegid() if gid is None else gid
    names = {str(uid), _name_of(uid)}
    if uid == 0:
        first_uid = _range(subuid, names, IDS + 1) or ROOT_BASE
        first_gid = _range(subgid, names, IDS + 1) or ROOT_BASE
        return Ids(
            first_uid=first_uid,
            first_gid=first_gid,
            keeper_uid=first_uid + IDS,
            keeper_gid=first_gid + IDS,
            as_root=True,
        )
    first_user, first_group = _range(subuid, names, IDS), _range(subgid, names, IDS)
    if first_user is None or first_group is None:
        name = _name_of(uid)
        msg = (
            f"user {name} has no {IDS} subordinate ids in {subuid} and {subgid}: as root, "
            f"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {name}"
        )
        raise SandboxError(msg)
    if not (shutil.which("newuidmap") and shutil.which("newgidmap")):
        raise SandboxError("newuidmap and newgidmap are missing: install the package uidmap (shadow-utils)")
    return Ids(first_uid=first_user, first_gid=first_group, keeper_uid=uid, keeper_gid=gid, as_root=False)


def obstacle(proc: Path = Path("/proc")) -> str:
    """Why sandboxes of namespaces cannot work here, as far as a quick look can tell; empty when they may."""
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
    if problem := missing_program():
        return problem
    for name, (closed, meaning, applies) in switches.items():
        if applies and _number(proc / name) == closed:
            return f"{meaning} (sysctl {name.removeprefix('sys/').replace('/', '.')} is {closed})"
    try:
        find_ids()
    except SandboxError as error:
        return str(error)
    return ""


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def write_maps(pid: int, ids: Ids) -> None:
    """Map the ids of the user namespace that a process has just made."""
    for program, file, numbers in zip(
        ("newuidmap", "newgidmap"), ("uid_map", "gid_map"), ids.maps(), strict=True
    ):
        words = [str(number) for number in numbers]
        if ids.as_root:
            lines = [" ".join(words[start : start + 3]) for start in range(0, len(words), 3)]
            try:
                Path(f"/proc/{pid}/{file}").write_text("\n".join(lines) + "\n")
            except OSError as error:
                msg = f"cannot map ids into a user namespace ({file}: {error.strerror}); is this a container?"
                raise SandboxError(msg) from error
            continue
        done = subprocess.run(
            [program, str(pid), *words], capture_output=True, text=True, check=False, env={}
        )
        if done.returncode:
            msg = f"{program} refused the ids: {done.stderr.strip() or done.returncode}"
            raise SandboxError(msg)


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _range(file: Path, names: set[str], count: int) -> int | None:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, rest = line.partition(":")
        first, _, size = rest.partition(":")
        if name in names and first.isdigit() and size.isdigit() and int(size) >= count:
            return int(first)
    return None
