"""The back ends of runs: one of a run's own, or one that all runs of a process share.

A process has one folder of sandboxes, which its back end removes when it closes. So where several runs are
executed in one process they share it, with its keeper and its layers, and the process closes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.errors import SandboxError
from proctor.model.canonical import digest
from proctor.runs.planning import network_allow
from proctor.runs.ready import sandbox_name
from proctor.sandbox.base import Backend, Sandbox, SandboxRequest
from proctor.settings import Settings

if TYPE_CHECKING:
    from proctor.runs.running import ReadyRun

_FOLDER = "sandboxes"


def open_backend_of(run: ReadyRun, home: Path | None = None) -> Backend:
    """A back end for a run, below Proctor's home."""
    from proctor.sandbox.certificates import read_ca_bundle
    from proctor.sandbox.choose import open_backend

    return open_backend(
        sandbox_name(run.spec, run.settings),
        home or run.settings.home / _FOLDER,
        network_allow=network_allow(run.spec, run.settings),
        ca_bundle=read_ca_bundle(run.settings.ca_bundle),
    )


async def remove_left(settings: Settings) -> None:
    """Remove sandboxes that killed processes left on this machine, also when no trial comes to need any."""
    from proctor.sandbox.choose import open_backend

    home = settings.home / _FOLDER
    if not any((home / "sandboxes").glob("[0-9]*")):
        return
    backend = open_backend("bubblewrap", home)
    try:
        with suppress(SandboxError):  # then this machine cannot have sandboxes, and a trial says why
            await backend.reap()
    finally:
        await backend.close()


class SharedBackends:
    """One back end for all runs of a process that want the same."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, Sequence[str]], Backend] = {}

    def of(self, run: ReadyRun) -> Backend:
        """The back end of a run, opened by the first that wants it."""
        from proctor.sandbox.choose import choose

        key = choose(sandbox_name(run.spec, run.settings)), network_allow(run.spec, run.settings)
        if key not in self._open:
            usual = key[1] == run.settings.network_allow
            home = run.settings.home / _FOLDER
            # Another folder for other networks: two back ends of one kind would remove each other's.
            self._open[key] = open_backend_of(run, home if usual else home / f"for-{digest(key)[:12]}")
        return self._open[key]

    async def close(self) -> None:
        """Stop what still runs, and leave nothing."""
        while self._open:
            await self._open.popitem()[1].close()


class Kept:
    """A shared back end as one run sees it: that the run is over does not close it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.name = backend.name

    def sandbox(self, request: SandboxRequest) -> Sandbox:
        """One sandbox, not yet started."""
        return self._backend.sandbox(request)

    async def reap(self) -> tuple[str, ...]:
        """Remove what killed processes left."""
        return await self._backend.reap()

    async def close(self) -> None:
        """It is shared: whoever opened it closes it."""
