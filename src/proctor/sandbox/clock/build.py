"""Build the library that changes the date, once per source; without a compiler there is none."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

AHEAD_S = 400 * 86_400
SOURCE = Path(__file__).parent / "shift.c"
_FLAGS = (
    "-O2", "-std=gnu11", "-shared", "-fPIC", "-nostdlib", "-fno-stack-protector", "-fvisibility=hidden",
    "-fno-delete-null-pointer-checks", "-U_FORTIFY_SOURCE", "-Wl,-soname,proctor-clock.so", "-Wl,-z,lazy",
    "-s",
)  # fmt: skip


def clock_library(cache_dir: Path) -> Path | None:
    """The built library, or None when it cannot be built here."""
    digest = hashlib.sha256(SOURCE.read_bytes() + repr((_FLAGS, AHEAD_S)).encode()).hexdigest()[:16]
    library = cache_dir / "clock" / f"clock-{digest}-{os.uname().machine}.so"
    if _trustworthy(library):
        return library
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    return _build(compiler, library) if compiler else None


def _build(compiler: str, library: Path) -> Path | None:
    library.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        made = Path(folder) / "clock.so"
        command = [compiler, *_FLAGS, f"-DSHIFT_S={AHEAD_S}L", "-o", str(made), str(SOURCE)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return None
        made.chmod(0o755)
        made.replace(library)  # concurrent builders make the same file
    return library


def _trustworthy(library: Path) -> bool:
    """A file that only this account could have written."""
    try:
        status = library.stat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
