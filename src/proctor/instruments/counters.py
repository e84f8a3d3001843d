"""What the kernel and the processor counted during an iteration: instructions where it may say so."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from proctor.instruments.base import Instrument

_SYSCALL = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
_HARDWARE, _SOFTWARE = 0, 1
_INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HV = 1 << 1, 1 << 5, 1 << 6
_WITH_TIMES = 3
_CLOSE_ON_EXEC = 8
_ATTRIBUTE_BYTES = 112

EVENTS: Mapping[str, tuple[int, int]] = {
    "instructions": (_HARDWARE, 1),
    "cycles": (_HARDWARE, 0),
    "cache_misses": (_HARDWARE, 3),
    "branch_misses": (_HARDWARE, 5),
    "task_clock_ns": (_SOFTWARE, 1),
    "page_faults": (_SOFTWARE, 2),
    "context_switches": (_SOFTWARE, 3),
    "cpu_migrations": (_SOFTWARE, 4),
}


class Counters(Instrument):
    """Event counts per iteration. Counting is the processor's work, so it rides along."""

    name = "counters"
    rides_along = True
    defaults: ClassVar[Mapping[str, Any]] = {"cachegrind": False}

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._handles: dict[str, int] = {}
        self._missing: dict[str, str] = {}
        self._before: dict[str, float] = {}
        self._last: dict[str, float] = {}

    def open(self, folder: Path) -> None:
        """Ask for each event in turn; what is refused is named in the summary, with the reason."""
        super().open(folder)
        for name, (kind, config) in EVENTS.items():
            try:
                self._handles[name] = open_event(kind, config)
            except OSError as error:
                self._missing[name] = errno.errorcode.get(error.errno or 0, "unknown")

    def __enter__(self) -> Self:
        self._before = self._read()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        after = self._read()
        self._last = {name: after[name] - self._before[name] for name in after if name in self._before}

    def metrics(self) -> Mapping[str, float]:
        """The counts of the iteration."""
        return self._last

    def close(self) -> Mapping[str, Any]:
        """Which events there were, and why the others were not."""
        for handle in self._handles.values():
            os.close(handle)
        return {"events": sorted(self._handles) or ["getrusage"], "refused": self._missing}

    def _read(self) -> dict[str, float]:
        if self._handles:
            return {name: read_event(handle) for name, handle in self._handles.items()}
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "page_faults": used.ru_minflt + used.ru_majflt,
            "context_switches": used.ru_nvcsw + used.ru_nivcsw,
        }


def open_event(kind: int, config: int) -> int:
    """A descriptor that counts one event of this process and of what it will fork. OSError when refused."""
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, "no perf_event_open on this machine")
    flags = _INHERIT | ((_EXCLUDE_KERNEL | _EXCLUDE_HV) if kind == _HARDWARE else 0)
    attribute = struct.pack("<IIQQQQQ", kind, _ATTRIBUTE_BYTES, config, 0, 0, _WITH_TIMES, flags)
    buffer = ctypes.create_string_buffer(attribute.ljust(_ATTRIBUTE_BYTES, b"\0"), _ATTRIBUTE_BYTES)
    libc = ctypes.CDLL(None, use_errno=True)
    handle = libc.syscall(number, buffer, 0, -1, -1, ctypes.c_ulong(_CLOSE_ON_EXEC))
    if handle < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(handle)


def read_event(handle: int) -> float:
    """The count so far, scaled up when the processor had to share its counters."""
    count, enabled, running = struct.unpack("<QQQ", os.read(handle, 24))
    return float(count * enabled / running) if running and running < enabled else float(count)
