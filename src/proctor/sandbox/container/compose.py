"""A sandbox with companions: a compose project whose main service is the container that we serve.

The task's file stays as it is. A copy of it gives the main service our init, limits and network, and every
part of the project the labels by which it is found again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from proctor.errors import SandboxError, TaskError
from proctor.sandbox.base import SandboxRequest
from proctor.sandbox.container import composition, leftovers
from proctor.sandbox.container.command import (
    ARGUMENTS,
    CAPABILITIES,
    HOST_NAME,
    INIT,
    Place,
    limit_options,
    mounts,
    security_options,
)
from proctor.sandbox.container.engine import Adjustment, Engine, ask, call
from proctor.sandbox.container.services import PROJECT
from proctor.sandbox.container.variables import LOGS, harbor_variables, protect

_UP_S = 300.0
_DOWN_S = 120.0
_PASSED = ("PATH", "HOME", "USER", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME")
_PASSED_PREFIXES = ("DOCKER_", "CONTAINER", "REGISTRY_")
_LIMIT_KEYS = {
    "--pids-limit": "pids_limit",
    "--memory": "mem_limit",
    "--memory-swap": "memswap_limit",
    "--cpus": "cpus",
}


def compose_program(engine: Engine) -> tuple[str, ...]:
    """The program that serves compose files; SandboxError says what to install."""
    for words in engine.compose:
        if shutil.which(words[0]):
            return words
    raise SandboxError(
        f"the task has a compose file, but {engine.name} cannot run compose files here: {engine.compose_hint}"
    )


class ComposeProject:
    """One project per sandbox."""

    def __init__(self, engine: Engine, fit: Adjustment, request: SandboxRequest, place: Place) -> None:
        assert request.root.compose is not None
        self._engine = engine
        self._fit = fit
        self._label = f"{PROJECT}={place.name}"
        options = ("--podman-args", " ".join(fit.options)) if fit.options else ()
        self._program = (*compose_program(engine), *options)
        self._folder = place.folder
        self._file = place.folder.with_suffix(".json")
        variables = {**request.granted, **request.env, **_variables(request)}
        composed = composition.read(request.root.compose, variables, main=request.root.service)
        document, apart = without_values(project(composed, fit, request, place), request.hidden)
        self._file.touch(mode=0o600)
        self._file.write_text(json.dumps(protect(document)))
        self._files = ["-p", place.name, "-f", str(self._file)]
        self._env = {**_environment(request.env), **apart}

    async def up(self) -> None:
        """`up --detach`."""
        command = [*self._program, *self._files, "up", "-d"]
        said = await call(command, timeout_s=_UP_S, env=self._env, cwd=self._folder)
        if said.code:
            raise SandboxError(f"{self._engine.name} could not start the task's services: {said.last_lines}")

    async def processes(self) -> list[int]:
        """The first process of each service that runs, as this machine numbers them."""
        base = [self._engine.program, *self._fit.options]
        said = await ask([*base, "ps", "--quiet", "--filter", f"label={self._label}"])
        if said.code == 0 and (names := said.out.split()):
            said = await ask([*base, "inspect", "--format", "{{.State.Pid}}", *names])
        if said.code or not said.out.split():
            raise SandboxError(f"{self._engine.name} cannot list the task's services: {said.reason}")
        return [int(word) for word in said.out.split() if word != "0"]

    async def down(self) -> None:
        """`down` without a grace period, volumes and networks included."""
        command = [*self._program, *self._files, "down", "-t", "0", "-v"]
        said = await call(command, timeout_s=_DOWN_S, env=self._env)
        # Older programs leave the networks.
        await leftovers.remove_project_parts(self._engine, self._fit, self._label)
        self._file.unlink(missing_ok=True)
        if said.code:
            raise SandboxError(f"{self._engine.name} could not remove the task's services: {said.reason}")


def project(
    composed: composition.Composition, fit: Adjustment, request: SandboxRequest, place: Place
) -> dict[str, Any]:
    """The task's compose file and what we lay over it, as one: programs differ in how they join two."""
    labels = {**place.labels, PROJECT: place.name}
    own = composed.document
    services = {
        name: {**service, **_ulimits(fit), "labels": {**_labels(service), **labels}}
        for name, service in own["services"].items()
    }
    main = services[composed.main]
    over = _main_service(fit, request, place)
    main.pop("build", None)
    own_volumes = [each for each in main.get("volumes", ()) if each not in LOGS.values()]
    services[composed.main] = {**main, **over, "volumes": [*own_volumes, *over["volumes"]]}
    closed = {} if request.limits.network == "public" else {"internal": True}
    networks = {
        name: {**own["networks"].get(name, {}), **closed, "labels": labels}
        for name in ("default", *own["networks"])
    }
    volumes = {name: {**volume, "labels": labels} for name, volume in own["volumes"].items()}
    return {"services": services, "networks": networks, **({"volumes": volumes} if volumes else {})}


def without_values(
    document: Mapping[str, Any], hidden: Sequence[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The project with names in place of secret variables of its services, and the variables themselves.

    A name alone is taken from the program's own environment; a value would be on the engine's command line.
    """
    apart: dict[str, str] = {}
    services = {}
    for name, service in document["services"].items():
        variables = composition.pairs(service.get("environment"), {})
        secret = {key: text for key, text in variables.items() if any(each in text for each in hidden)}
        for key, value in secret.items():
            if apart.setdefault(key, value) != value or key in _PASSED:
                raise TaskError(f"service {name}: the variable {key} holds a secret and needs another name")
        changed = {"environment": {**variables, **dict.fromkeys(secret)}} if secret else {}
        services[name] = {**service, **changed}
    found = {**document, "services": services}
    if any(json.dumps(each)[1:-1] in json.dumps(found) for each in hidden):
        raise TaskError(
            "the compose file uses a secret outside of 'environment', where other users of the machine see it"
        )
    return found, apart


def _variables(request: SandboxRequest) -> dict[str, str]:
    root, limits = request.root, request.limits
    assert root.compose is not None
    image = root.image or ""
    return harbor_variables(
        root.compose.parent,
        main_image=image,
        prebuilt=image,
        cpus=limits.cpus,
        memory_bytes=limits.memory_bytes,
    )


def _labels(service: Mapping[str, Any]) -> dict[str, Any]:
    """A service's own labels, which may be written as a list."""
    given = service.get("labels") or {}
    return dict(given) if isinstance(given, dict) else dict(str(each).partition("=")[::2] for each in given)


def _main_service(fit: Adjustment, request: SandboxRequest, place: Place) -> dict[str, Any]:
    options = limit_options(request.limits, fit)
    limits: dict[str, Any] = {
        _LIMIT_KEYS[name]: value for name, value in zip(options[::2], options[1::2], strict=True)
    }
    if "pids_limit" in limits:
        limits["pids_limit"] = int(limits["pids_limit"])
    return {
        "image": request.root.image,
        "pull_policy": "never",
        "entrypoint": [INIT, *ARGUMENTS],
        "command": [],
        "user": "0:0",
        "working_dir": "/",
        "hostname": HOST_NAME,
        "restart": "no",
        "healthcheck": {"disable": True},
        "cap_drop": ["ALL"],
        "cap_add": list(CAPABILITIES),
        "security_opt": list(security_options(place)),
        "volumes": [f"{source}:{target}:ro" for source, target in mounts(request, place)],
        **limits,
    }


def _ulimits(fit: Adjustment) -> dict[str, Any]:
    pairs = [word.split("=") for word in fit.ulimits if "=" in word]
    found = {name: int(value.split(":")[0]) for name, value in pairs}
    return (
        {"ulimits": {name: {"soft": value, "hard": value} for name, value in found.items()}} if found else {}
    )


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    """What `${VAR}` in the file may mean: the task's own variables, never those of this machine."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED or name.startswith(_PASSED_PREFIXES)
    }
    return {**given, **kept}
