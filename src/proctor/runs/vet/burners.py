"""Keep every CPU of this machine busy, and stop: no busy process outlives this one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from proctor.processes import allowed_cpus, host_environment

PER_CPU = 2
MOST = 64
# The parent may be gone before the child has asked to be told; so it also looks for itself.
_BURN = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
while os.getppid() == int(sys.argv[1]):
    for _ in range(2_000_000):
        pass
"""


class Burners:
    """Processes that do nothing but use the CPU."""

    def __init__(self, count: int | None = None) -> None:
        self.count = min(PER_CPU * len(allowed_cpus()), MOST) if count is None else count
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Light them, unless they burn already."""
        import os

        while len(self.running) < self.count:
            command = [sys.executable, "-I", "-S", "-c", _BURN, str(os.getpid())]
            self.running.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=host_environment(),
                )
            )

    def stop(self) -> None:
        """End and collect every one of them."""
        for process in self.running:
            with suppress(OSError):
                process.kill()
        for process in self.running:
            process.wait()
        self.running.clear()


class Turns:
    """Trials on a busy machine and trials on a quiet one, never at the same time."""

    def __init__(self, burners: Burners) -> None:
        import asyncio

        self.burners = burners
        self._changed = asyncio.Condition()
        self._busy = False
        self._inside = 0

    @asynccontextmanager
    async def take(self, *, busy: bool) -> AsyncIterator[None]:
        """Wait for those of the other kind to end; the first and last busy ones light and end the fire."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._inside == 0 or self._busy is busy)
            self._busy = busy
            self._inside += 1
            if busy:
                self.burners.start()
        try:
            yield
        finally:
            self._inside -= 1
            if self._inside == 0:
                self.burners.stop()
            async with self._changed:
                self._changed.notify_all()
