"""Let forks inherit where the interpreter's own code is in memory.

A fork takes over no page table of a mapped file that nothing was ever written to. Its child finds each page
of code again by a fault, some sixty of them for a point. Where one page of the mapping was written to, if
only with what it held, the kernel copies the table, and nobody faults.
"""

from __future__ import annotations

import os

_FILES = ("libpython", "python", "libc.so", "libc-")
_SMALL_BYTES = 128 << 10
"""A smaller mapping has too few pages to be worth a look at every fork."""


def inherit_code() -> None:
    """Forks of this process have its code in place from now on. Where that is not allowed nothing changes."""
    try:
        memory = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return
    try:
        for start in _code():
            os.pwrite(memory, os.pread(memory, 1, start), start)
    except OSError:
        pass
    finally:
        os.close(memory)


def _code() -> list[int]:
    """Where code and constants of the interpreter and of the C library begin."""
    found = []
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:  # noqa: PTH123 - light
        for line in lines:
            span, rights, *_, file = line.rstrip("\n").split(maxsplit=5)
            start, _, end = span.partition("-")
            large = int(end, 16) - int(start, 16) >= _SMALL_BYTES
            if large and rights in {"r-xp", "r--p"} and file.rpartition("/")[2].startswith(_FILES):
                found.append(int(start, 16))
    return found
