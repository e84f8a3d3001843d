"""The image that all container tests of this machine share, as long as one of them needs it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

_SCRIPT = Path(__file__).parents[1] / "scripts" / "host_image.py"
_USERS = Path(tempfile.gettempdir()) / f"proctor-test-image-{os.geteuid()}"
"""Locked by each user for as long as it lasts; who can lock it alone is the last."""


@contextlib.contextmanager
def shared_image(engine: str) -> Iterator[tuple[str, str]]:
    """Its reference, or nothing and why. Made by the first, removed by the last, whoever these are."""
    with _locked() as users:
        made = subprocess.run([sys.executable, _SCRIPT, engine], capture_output=True, text=True, check=False)
        if made.returncode:
            yield "", f"{engine} cannot make an image here: {made.stderr.strip().splitlines()[-1:]}"
            return
        reference = made.stdout.strip()
        try:
            yield reference, ""
        finally:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                subprocess.run([engine, "image", "rm", reference], capture_output=True, check=False)
                _USERS.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked() -> Iterator[int]:
    """The file of users, shared with others, and still the one that has this name."""
    while True:
        fd = os.open(_USERS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH)
            with contextlib.suppress(FileNotFoundError):
                if _USERS.stat().st_ino == os.fstat(fd).st_ino:
                    yield fd
                    return
        finally:
            os.close(fd)
