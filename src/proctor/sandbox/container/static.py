"""The init of a container: our keeper's program, linked statically so that it runs in any image."""

from __future__ import annotations

import struct
from pathlib import Path

from proctor.errors import SandboxError
from proctor.sandbox.init.build import keeper_program

_ELF64 = struct.Struct("<16xHHIQQQIHHHHHH")
_INTERPRETER = 3


def init_program() -> Path:
    """The program; SandboxError says what to install."""
    try:
        program = keeper_program()
    except OSError as error:
        raise SandboxError(str(error)) from error
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
