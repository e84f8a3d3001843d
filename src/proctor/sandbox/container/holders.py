"""Containers that hold the networks of docker's services: these have rules before anything runs there.

docker makes the network of a container as it starts it, and anew when it starts it again. So each service
joins the network of a container in which only our init waits: that one has the service's networks and its
name there, and stays when the service is restarted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from proctor.sandbox.base import SandboxRequest
from proctor.sandbox.container.command import INIT, SOCKET_FOLDER, HostParts, listening, rights

SUFFIX = "-network"
"""How the service is named that has the network of another."""
_WAITING = "waiting"
_MOST_WAITING = 128
_KEYS = frozenset({"networks", "hostname", "expose"})
"""What belongs to a network, and may not be said of a service that joins another's."""


def added(
    document: Mapping[str, Any], labels: Mapping[str, str], request: SandboxRequest, parts: HostParts
) -> dict[str, Any]:
    """The project with a container for the network of each service, which the service joins."""
    services: dict[str, Any] = {}
    for name, service in document["services"].items():
        theirs = {key: value for key, value in service.items() if key in _KEYS}
        holder = f"{name}{SUFFIX}"
        services[holder] = {
            **theirs,
            "networks": _with_alias(theirs.get("networks"), name),
            "image": request.root.image,
            "pull_policy": "never",
            "entrypoint": [INIT, "container", f"{SOCKET_FOLDER}/{_WAITING}"],
            "command": [],
            "user": "0:0",
            "restart": "no",
            "healthcheck": {"disable": True},
            **rights(parts),
            "volumes": [f"{parts.program}:{INIT}:ro", f"{parts.folder}:{SOCKET_FOLDER}:ro"],
            "labels": dict(labels),
        }
        rest = {key: value for key, value in service.items() if key not in _KEYS}
        services[name] = {**rest, "network_mode": f"service:{holder}"}
    return {**document, "services": services}


def _with_alias(networks: Any, name: str) -> dict[str, Any]:
    """The networks of a service, in which it is found by its name."""
    named = dict(networks) if isinstance(networks, dict) else dict.fromkeys(networks or ("default",))
    return {
        network: {**(own or {}), "aliases": [*(own or {}).get("aliases", ()), name]}
        for network, own in named.items()
    }


@contextlib.contextmanager
def waiting(folder: Path) -> Iterator[None]:
    """A socket at which inits wait and are never answered; they end with it."""
    with listening(folder, _WAITING, _MOST_WAITING):
        yield
