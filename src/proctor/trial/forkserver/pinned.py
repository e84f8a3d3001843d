"""Have the kernel copy, at each fork, the pages that every child writes anyway.

A page that a fork left shared is copied when it is first written, by a fault that costs several times the
copy itself, in the child as in its parent. A page that is pinned for the kernel's own use is never shared:
the fork copies it at once and nobody faults. So a zygote sees in one rehearsal which pages get written, and
registers them as buffers of an `io_uring` that does nothing else. Where that is not allowed, or the kernel
has no such thing, forks cost what they cost without.
"""

from __future__ import annotations

import ctypes
import marshal
import os
from array import array

from proctor.experiments.base import Experiment, Registered
from proctor.trial.forkserver.child import Child
from proctor.trial.forkserver.page import SharedPage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from proctor.experiments.base import ExperimentContext


_SYS_IO_URING_SETUP = 425
_SYS_IO_URING_REGISTER = 427
_REGISTER_BUFFERS = 0
_PARAMS_BYTES = 120
MOST_PAGES = 2048
_MOST_BYTES = 256 << 20
"""Of memory to look through. A larger piece is an experiment's data and not what the harness writes."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_ENTRY_BYTES = 8
_PRESENT, _OF_A_FILE, _UNSHARED = 1 << 63, 1 << 61, 1 << 56


class _Range(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("size", ctypes.c_size_t))


def written_by(rehearsal: Callable[[], object]) -> list[int]:
    """Rehearse in a fork of this process: the addresses of the pages that one of both wrote meanwhile.

    Those are the ones that both no longer share when it is over, by the child's own page table.
    """
    memory = _private_memory()
    file = os.memfd_create("pages")
    pid = os.fork()
    if pid == 0:
        try:
            rehearsal()
            table = os.open("/proc/self/pagemap", os.O_RDONLY)
            for start, end in memory:
                os.write(
                    file,
                    os.pread(table, (end - start) // _PAGE * _ENTRY_BYTES, start // _PAGE * _ENTRY_BYTES),
                )
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    try:
        entries = array("Q", os.pread(file, _MOST_BYTES // _PAGE * _ENTRY_BYTES, 0))
    finally:
        os.close(file)
    pages = (page for start, end in memory for page in range(start, end, _PAGE))
    unshared = _PRESENT | _UNSHARED
    return [
        page
        for page, entry in zip(pages, entries, strict=False)
        if entry & unshared == unshared and not entry & _OF_A_FILE
    ]


def _private_memory() -> list[tuple[int, int]]:
    """Where this process has memory of its own that it may write, up to a limit in all."""
    found = []
    left = _MOST_BYTES
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:  # noqa: PTH123 - light
        for line in lines:
            span, rights = line.split(maxsplit=2)[:2]
            start, _, end = span.partition("-")
            size = int(end, 16) - int(start, 16)
            if rights.startswith("rw") and rights.endswith("p") and size <= left:
                left -= size
                found.append((int(start, 16), int(end, 16)))
    return found


def pin(pages: Sequence[int]) -> int | None:
    """Share these pages with no fork from now on: a descriptor to keep open, or None when that cannot be."""
    if not 0 < len(pages) <= MOST_PAGES:
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    ring = libc.syscall(_SYS_IO_URING_SETUP, 1, ctypes.create_string_buffer(_PARAMS_BYTES))
    if ring < 0:
        return None
    ranges = (_Range * len(pages))(*(_Range(page, _PAGE) for page in pages))
    if libc.syscall(_SYS_IO_URING_REGISTER, ring, _REGISTER_BUFFERS, ranges, len(pages)) < 0:
        os.close(ring)
        return None
    return int(ring)


class _Nothing(Experiment):
    """Does nothing."""

    def execute_once(self, context: ExperimentContext) -> dict[str, Any]:
        return {"index": context.iteration_index, "value": 1.5}


_NOTHING = Registered(slug="", cls=_Nothing)
_REQUEST = {
    "number": 0,
    "run_id": "",
    "params": {},
    "fitted": ({}, (), {}),
    "seed": 0,
    "output_dir": ".",
    "run_dir": ".",
    "instruments_dir": ".",
    "instrument_names": [],
    "instruments": [],
    "iterations": {"warmup": 0, "measured": 1},
    "loops": 1,
    "gc": "disabled",
    "resident": True,
    "pace": None,
}


def pin_what_it_writes() -> int | None:
    """Rehearse in a fork, as measured processes live, and pin what that wrote; see `pinned.pin`."""
    silence = os.open(os.devnull, os.O_WRONLY)
    ours, theirs = os.pipe()
    child = Child(_NOTHING, SharedPage(), stream=theirs, outputs=(silence, silence))
    order = marshal.dumps(_REQUEST)
    try:
        return pin(written_by(lambda: child.live(order)))
    except OSError:
        # Without /proc, say. Forks are dearer then, and as good.
        return None
    finally:
        for handle in (silence, ours, theirs):
            os.close(handle)
