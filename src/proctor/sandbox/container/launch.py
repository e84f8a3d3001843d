"""Start and remove the container of a sandbox, alone or with the companions of a compose file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from proctor.errors import SandboxError
from proctor.sandbox.base import SandboxRequest
from proctor.sandbox.container.command import Place, run_command
from proctor.sandbox.container.engine import Adjustment, Engine, Said, call
from proctor.sandbox.container.state import restore

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

    def __init__(
        self,
        engine: Engine,
        fit: Adjustment,
        request: SandboxRequest,
        place: Place,
        enter: Sequence[str] | None = None,
    ) -> None:
        self._engine = engine
        self._fit = fit
        self._name = place.name
        self._folder = place.folder
        self._state = request.state
        self._enter = enter
        self._command = run_command(engine, fit, request, place)

    async def up(self) -> None:
        """`run --detach`; with changes to begin with `create`, and `start` after they are in place."""
        if self._state is None:
            await self._call(self._command)
            return
        at = self._command.index("run")
        words = [word for word in self._command[at + 1 :] if word != "--detach"]
        await self._call([*self._command[:at], "create", *words])
        await restore(self._engine, self._fit, self._name, self._state, self._enter)
        await self._call([*self._command[:at], "start", self._name])

    async def _call(self, command: Sequence[str]) -> None:
        # When the container runs out of memory, its monitor leaves a file where it was started.
        said = await call(command, timeout_s=START_S, cwd=self._folder)
        if said.code:
            raise SandboxError(f"{self._engine.name} could not start a container: {said.reason}")

    async def down(self) -> None:
        """`rm --force` without a grace period."""
        await remove(self._engine, self._fit, [self._name])


def launch_of(
    engine: Engine,
    fit: Adjustment,
    request: SandboxRequest,
    place: Place,
    enter: Sequence[str] | None = None,
) -> Launch:
    """The way a request's container is started; `enter` is what to put before commands of its root."""
    if request.root.compose:
        if request.state:
            raise SandboxError("saved changes cannot be put into the services of a compose file")
        from proctor.sandbox.container.compose import ComposeProject

        return ComposeProject(engine, fit, request, place)
    return SingleContainer(engine, fit, request, place, enter)


async def remove(engine: Engine, fit: Adjustment, names: list[str]) -> None:
    """Kill and remove containers; those that have gone already are no error."""
    said = Said(code=0, out="", err="")
    for _ in range(2):  # the engine may be removing it just now, by itself
        said = await call([engine.program, *fit.options, *engine.remove, *names], timeout_s=START_S)
        if said.code == 0 or any(text in said.err.lower() for text in _GONE):
            return
    raise SandboxError(f"{engine.name} could not remove {', '.join(names)}: {said.reason}")
