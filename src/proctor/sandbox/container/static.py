"""The init of a container: our keeper's program, linked statically so that it runs in any image."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

from proctor.errors import SandboxError
from proctor.sandbox.init.build import keeper_program

_ELF64 = struct.Struct("<16xHHIQQQIHHHHHH")
_INTERPRETER = 3


def missing_compiler() -> str:
    """Why the init cannot be built here, as far as a quick look can tell."""
    if any(shutil.which(each) for each in ("cc", "gcc", "clang")):
        return ""
    return "no C compiler is installed; it is needed to build the init of the containers"


def init_program(cache_dir: Path) -> Path:
    """The built init; SandboxError says what to install."""
    program = keeper_program(cache_dir)
    if program is None:
        raise SandboxError(f"{missing_compiler() or 'the init of the containers cannot be built here'}")
    if not is_static(program):
        raise SandboxError(
            "the init of the containers cannot be linked statically here: install the C library's static "
            "part (libc6-dev, or glibc-static)"
        )
    return program


def is_static(program: Path) -> bool:
    """Whether a program needs no loader from the image it runs in."""
    data = program.read_bytes()[:4096]
    if data[:5] != b"\x7fELF\x02" or len(data) < _ELF64.size:
        return False
    fields = _ELF64.unpack_from(data)
    first, size, count = fields[4], fields[8], fields[9]
    kinds = [struct.unpack_from("<I", data, first + size * each)[0] for each in range(count)]
    return _INTERPRETER not in kinds
