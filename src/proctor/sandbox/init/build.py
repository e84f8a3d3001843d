"""The keeper's program: it ships built for x86-64 and arm64, and is compiled once per account elsewhere."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent
BUILT = SOURCES / "built"
"""What `make keeper` made of the sources, with the digests of both."""
_FLAGS = ("-O2", "-std=gnu11", "-Wall", "-s")


def keeper_program() -> Path:
    """The program for this processor; OSError says why there is none."""
    if _shipped():
        return BUILT / _name()
    if problem := missing_program():
        raise OSError(problem)
    return _from_source(_user_cache())


def missing_program() -> str:
    """Why there is no keeper for this processor, as far as a quick look can tell."""
    if _shipped() or _compiler():
        return ""
    return (
        f"Proctor ships no sandbox keeper that runs on this machine ({os.uname().machine}), "
        "and no C compiler is installed to build it: install gcc"
    )


def origin() -> str:
    """Where the program comes from, for `proctor doctor`."""
    return missing_program() or ("shipped" if _shipped() else f"built with {_compiler()}")


def _name() -> str:
    return f"keeper-{os.uname().machine}"


def _shipped() -> bool:
    return os.access(BUILT / _name(), os.X_OK)


def _compiler() -> str:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang") or ""


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "proctor"


def _from_source(cache_dir: Path) -> Path:
    files = sorted(SOURCES.glob("*.[ch]"))
    digest = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]
    program = cache_dir / f"{_name()}-{digest}"
    if _trustworthy(program):
        return program
    program.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    said = ""
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        made = Path(folder) / "keeper"
        # Static where the compiler can: only such a program can be the init of a container.
        for more in (("-static",), ()):
            sources = [str(file) for file in files if file.suffix == ".c"]
            command = [_compiler(), *_FLAGS, *more, "-o", str(made), *sources]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
            if done.returncode == 0:
                made.chmod(0o755)
                made.replace(program)  # concurrent builders make the same file
                return program
            said = next((line for line in done.stderr.splitlines() if "error" in line), "")
    raise OSError(f"the sandbox keeper cannot be built with {_compiler()}: {said or 'it failed'}")


def _trustworthy(program: Path) -> bool:
    """A file that only this account could have written."""
    try:
        status = program.stat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
