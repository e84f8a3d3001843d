"""Programs of our own in C: the keeper, which is also the init of sandboxes, and the clock of another date.

The keeper ships built for x86-64 and arm64; whatever else is needed is compiled once per account.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from proctor.errors import SandboxError
from proctor.processes import host_environment

SOURCES = Path(__file__).parent / "init"
BUILT = SOURCES / "built"
"""What `make keeper` made of the sources, with the digests of both."""
AHEAD_S = 400 * 86_400
_CLOCK = Path(__file__).parent / "clock/shift.c"
_FLAGS = ("-O2", "-std=gnu11", "-Wall", "-s")
_CLOCK_FLAGS = (
    "-O2", "-std=gnu11", "-shared", "-fPIC", "-nostdlib", "-fno-stack-protector", "-fvisibility=hidden",
    "-fno-delete-null-pointer-checks", "-U_FORTIFY_SOURCE", "-Wl,-soname,proctor-clock.so", "-Wl,-z,lazy",
    "-s", f"-DSHIFT_S={AHEAD_S}L",
)  # fmt: skip
_OF_COMPILERS = ("CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "NIX_*")
_ELF64 = struct.Struct("<16xHHIQQQIHHHHHH")
_INTERPRETER = 3


def keeper_program() -> Path:
    """The program for this processor; SandboxError says why there is none."""
    if _shipped():
        return BUILT / _name()
    if problem := missing_program():
        raise SandboxError(problem)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "proctor"
    files = sorted(SOURCES.glob("*.[ch]"))
    sources = [str(file) for file in files if file.suffix == ".c"]
    program = cache / f"{_name()}-{_digest(*(file.read_bytes() for file in files))}"
    # Static where the compiler can: only such a program can be the init of a container.
    said = _compiled(program, [(*_FLAGS, "-static", *sources), (*_FLAGS, *sources)])
    if said:
        raise SandboxError(f"the sandbox keeper cannot be built with {_compiler()}: {said}")
    return program


def init_program() -> Path:
    """The keeper as the init of a container, where it must run in any image; SandboxError when it cannot."""
    program = keeper_program()
    if not is_static(program):
        raise SandboxError(
            "the init of the containers cannot be linked statically here: install the C library's static "
            "part (libc6-dev, or glibc-static)"
        )
    return program


def clock_library(cache_dir: Path) -> Path | None:
    """What makes programs see another date; None when it cannot be built here."""
    digest = _digest(_CLOCK.read_bytes(), repr(_CLOCK_FLAGS).encode())
    library = cache_dir / "clock" / f"clock-{digest}-{os.uname().machine}.so"
    return None if _compiled(library, [(*_CLOCK_FLAGS, str(_CLOCK))]) else library


def missing_program() -> str:
    """Why there is no keeper for this processor, as far as a quick look can tell."""
    if _shipped() or _compiler():
        return ""
    return (
        f"Proctor ships no sandbox keeper that runs on this machine ({os.uname().machine}), "
        "and no C compiler is installed to build it: install gcc"
    )


def origin() -> str:
    """Where the keeper comes from, for `proctor doctor`."""
    return missing_program() or ("shipped" if _shipped() else f"built with {_compiler()}")


def is_static(program: Path) -> bool:
    """Whether a program needs no loader from the image it runs in."""
    data = program.read_bytes()[:4096]
    if data[:5] != b"\x7fELF\x02" or len(data) < _ELF64.size:
        return False
    fields = _ELF64.unpack_from(data)
    first, size, count = fields[4], fields[8], fields[9]
    kinds = [struct.unpack_from("<I", data, first + size * each)[0] for each in range(count)]
    return _INTERPRETER not in kinds


def _name() -> str:
    return f"keeper-{os.uname().machine}"


def _shipped() -> bool:
    return os.access(BUILT / _name(), os.X_OK)


def _compiler() -> str:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang") or ""


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _compiled(target: Path, ways: Sequence[Sequence[str]]) -> str:
    """Compile a file unless it is there, in the first way that works; why none does, or nothing."""
    if _trustworthy(target):
        return ""
    compiler, said = _compiler(), "no C compiler is installed"
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / "made"
        for words in ways if compiler else ():
            command = [compiler, *words, "-o", str(made)]
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                env=host_environment(*_OF_COMPILERS),
            )
            if done.returncode == 0:
                made.chmod(0o755)
                made.replace(target)  # concurrent builders make the same file
                return ""
            said = next((line for line in done.stderr.splitlines() if "error" in line), "it failed")
    return said


def _trustworthy(file: Path) -> bool:
    """A file that only this account could have written."""
    try:
        status = file.stat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
