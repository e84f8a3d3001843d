"""Start and remove the container of a sandbox, alone or with the companions of a compose file."""

from __future__ import annotations

from typing import Protocol

from proctor.errors import SandboxError
from proctor.sandbox.base import SandboxRequest
from proctor.sandbox.container.command import Place, run_command
from proctor.sandbox.container.engine import Adjustment, Engine, Said, call

START_S = 120.0
_GONE = ("no such container", "no container with")


class Launch(Protocol):
    """How a container comes and goes."""

    async def up(self) -> None:
        """Start it; SandboxError with the engine's own words."""

    async def down(self) -> None:
        """Kill and remove it and all that came with it, also when it never started."""


class SingleContainer:
    """One container and nothing else."""

    def __init__(self, engine: Engine, fit: Adjustment, request: SandboxRequest, place: Place) -> None:
        self._engine = engine
        self._fit = fit
        self._name = place.name
        self._folder = place.folder
        self._command = run_command(engine, fit, request, place)

    async def up(self) -> None:
        """`run --detach`."""
        # When the container runs out of memory, its monitor leaves a file where it was started.
        said = await call(self._command, timeout_s=START_S, cwd=self._folder)
        if said.code:
            raise SandboxError(f"{self._engine.name} could not start a container: {said.reason}")

    async def down(self) -> None:
        """`rm --force` without a grace period."""
        await remove(self._engine, self._fit, [self._name])


def launch_of(engine: Engine, fit: Adjustment, request: SandboxRequest, place: Place) -> Launch:
    """The way a request's container is started."""
    if request.root.compose:
        from proctor.sandbox.container.compose import ComposeProject

        return ComposeProject(engine, fit, request, place)
    return SingleContainer(engine, fit, request, place)


async def remove(engine: Engine, fit: Adjustment, names: list[str]) -> None:
    """Kill and remove containers; those that have gone already are no error."""
    said = Said(code=0, out="", err="")
    for _ in range(2):  # the engine may be removing it just now, by itself
        said = await call([engine.program, *fit.options, *engine.remove, *names], timeout_s=START_S)
        if said.code == 0 or any(text in said.err.lower() for text in _GONE):
            return
    raise SandboxError(f"{engine.name} could not remove {', '.join(names)}: {said.reason}")
