"""An account for a test, of which nothing stays: no process, no file, no entry."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

_GONE_S = 30.0


@contextlib.contextmanager
def account(name: str) -> Iterator[str]:
    """Make it; whatever happens then, end its processes and remove it with all that it owns."""
    subprocess.run(["useradd", "--create-home", "--add-subids-for-system", name], check=True)
    try:
        yield name
    finally:
        uid, ids = _ids(name)
        _end_processes(ids)
        subprocess.run(["userdel", "--remove", name], check=True, capture_output=True)
        for folder in (Path("/tmp"), Path("/var/tmp"), Path("/run/user")):
            for path in folder.glob("*"):
                if _owner(path) in ids or path == Path(f"/run/user/{uid}"):
                    shutil.rmtree(path, ignore_errors=True)
                    path.unlink(missing_ok=True)


def _ids(name: str) -> tuple[int, set[int]]:
    """The account's own id, and with it those that its sandboxes may use."""
    uid = pwd.getpwnam(name).pw_uid
    ids = {uid}
    for line in Path("/etc/subuid").read_text().splitlines():
        owner, first, count = line.split(":")
        if owner in {name, str(uid)}:
            ids |= set(range(int(first), int(first) + int(count)))
    return uid, ids


def _end_processes(ids: set[int]) -> None:
    deadline = time.monotonic() + _GONE_S
    while alive := [pid for pid in _processes() if _owner(Path(f"/proc/{pid}")) in ids]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes of a test's account do not end: {alive}")
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _processes() -> Iterator[int]:
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with contextlib.suppress(OSError):
                if (path / "stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}:
                    yield int(path.name)


def _owner(path: Path) -> int:
    try:
        return path.lstat().st_uid
    except OSError:
        return -1
