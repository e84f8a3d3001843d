"""What `proctor doctor` says about a container engine: what works, what was adjusted, what is missing."""

from __future__ import annotations

import os

from proctor.errors import SandboxError
from proctor.sandbox import slirp
from proctor.sandbox.container import adjust
from proctor.sandbox.container.backend import Containers
from proctor.sandbox.container.compose import compose_program
from proctor.sandbox.container.engine import LIMITS, Adjustment, Engine
from proctor.sandbox.probe import Check


async def probe(backend: Containers) -> tuple[Check, ...]:
    """Everything that matters to containers of an engine, the first being one that was really made."""
    try:
        fit = await adjust.find(backend)
    except SandboxError as error:
        return (Check(name="a container", ok=False, detail=str(error), needed=True),)
    finally:
        await backend.close()
    return (
        Check(name="a container", ok=True, detail=explain(fit), needed=True),
        _limits(fit),
        await _storage(backend),
        _public(backend),
        _compose(backend.engine),
    )


def explain(fit: Adjustment) -> str:
    """How containers are run here, for a person."""
    ways = []
    if fit.options:
        ways.append(f"with {' '.join(fit.options)}, since the usual runtime fails")
    if fit.ulimits:
        values = " and ".join(word for word in fit.ulimits if "=" in word)
        ways.append(f"with {values}, since higher limits may not be set")
    return f"worked {'; '.join(ways) or 'with the defaults of the engine'}"


def _limits(fit: Adjustment) -> Check:
    missing = [each for each in LIMITS if each not in fit.limits]
    if not missing:
        return Check(name="limits", ok=True, detail=f"{', '.join(LIMITS)} through control groups")
    told = "each process is limited instead; this is recorded"
    return Check(name="limits", ok=False, detail=f"{', '.join(missing)} cannot be set here: {told}")


async def _storage(backend: Containers) -> Check:
    asked = "{{.Store.GraphDriverName}}" if backend.name == "podman" else "{{.Driver}}"
    try:
        driver = await backend.ask("info", "--format", asked)
    except SandboxError as error:
        return Check(name="storage", ok=False, detail=str(error))
    if driver != "vfs":
        return Check(name="storage", ok=True, detail=driver)
    where = "/etc/containers" if os.geteuid() == 0 else "~/.config/containers"
    told = f'vfs copies whole images and takes seconds: set driver = "overlay" in {where}/storage.conf'
    return Check(name="storage", ok=False, detail=told)


def _public(backend: Containers) -> Check:
    problem = slirp.obstacle()
    if not problem and backend.launch() is None:
        problem = f"only root may enter the networks of {backend.name} containers: run Proctor as root"
    told = problem or "slirp4netns, as for bubblewrap"
    return Check(name="network 'public'", ok=not problem, detail=told)


def _compose(engine: Engine) -> Check:
    try:
        return Check(name="compose files", ok=True, detail=" ".join(compose_program(engine)))
    except SandboxError:
        return Check(name="compose files", ok=False, detail=f"not supported: {engine.compose_hint}")
