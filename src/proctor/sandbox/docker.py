"""Sandboxes that are docker containers, on an engine of this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from proctor.sandbox.certificates import CaBundle
from proctor.sandbox.container.backend import Containers
from proctor.sandbox.container.engine import Engine
from proctor.sandbox.init.build import missing_program

SOCKET = Path("/var/run/docker.sock")


def engine() -> Engine:
    """docker, as it is installed here."""
    return Engine(
        name="docker",
        program="docker",
        run=(),
        remove=("rm", "--force", "--volumes"),
        owners='{{.ID}}\t{{.Label "proctor.owner"}}\t{{.Label "proctor.place"}}\t{{.Label "proctor.lock"}}',
        build=("build", "--progress", "plain"),
        build_marks=False,
        compose=(("docker", "compose"), ("docker-compose",)),
        compose_hint="install the compose plugin of docker",
    )


def open_docker(
    home: Path,
    *,
    cache_dir: Path | None = None,
    network_allow: Sequence[str] = (),
    ca_bundle: CaBundle | None = None,
) -> Containers:
    """The back end."""
    return Containers(engine(), home, cache_dir=cache_dir, network_allow=network_allow, ca_bundle=ca_bundle)


def obstacle() -> str:
    """Why docker sandboxes cannot work here, as far as a quick look can tell."""
    if not shutil.which("docker"):
        return "docker is not installed"
    host = os.environ.get("DOCKER_HOST", "")
    if host and not host.startswith("unix://"):
        return f"DOCKER_HOST is {host}: sandboxes share sockets with an engine, which must be on this machine"
    socket = Path(host.removeprefix("unix://")) if host else SOCKET
    if not socket.exists():
        return f"no docker engine answers at {socket}"
    if not os.access(socket, os.R_OK | os.W_OK):
        return f"{socket} may not be used by this account (add it to the group docker)"
    return missing_program()
