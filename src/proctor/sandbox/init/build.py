"""Build the keeper from its source, once per source and compiler; without a compiler there is none."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent
_FLAGS = ("-O2", "-std=gnu11", "-Wall", "-s")


def keeper_program(cache_dir: Path) -> Path | None:
    """The built keeper, or None when it cannot be built here: then bubblewrap itself does the work."""
    files = sorted(SOURCES.glob("*.[ch]"))
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    digest = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]
    program = cache_dir / "keeper" / f"keeper-{digest}-{os.uname().machine}"
    if _trustworthy(program):
        return program
    if compiler is None:
        return None
    return _build(compiler, [file for file in files if file.suffix == ".c"], program)


def _build(compiler: str, sources: list[Path], program: Path) -> Path | None:
    program.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        made = Path(folder) / "keeper"
        # Static where the compiler can: smaller in memory. Never needed, for nothing is run from the inside.
        for more in (("-static",), ()):
            command = [compiler, *_FLAGS, *more, "-o", str(made), *map(str, sources)]
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                made.chmod(0o755)
                made.replace(program)  # concurrent builders make the same file
                return program
    return None


def _trustworthy(program: Path) -> bool:
    """A file that only this account could have written."""
    try:
        status = program.stat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
