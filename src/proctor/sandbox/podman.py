"""Sandboxes that are podman containers, of root or of an ordinary user."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from proctor.sandbox.certificates import CaBundle
from proctor.sandbox.container.backend import Containers
from proctor.sandbox.container.engine import Engine
from proctor.sandbox.init.build import missing_program


def engine() -> Engine:
    """podman, as it is installed here."""
    return Engine(
        name="podman",
        program="podman",
        run=("--http-proxy=false",),
        remove=("rm", "--force", "--time", "0", "--volumes", "--ignore"),
        owners='{{.ID}}\t{{index .Labels "proctor.owner"}}\t{{index .Labels "proctor.place"}}'
        '\t{{index .Labels "proctor.lock"}}',
        build=("build", "--isolation", "oci", "--network", "host", "--force-rm"),
        build_marks=True,
        compose=(("podman-compose",),),
        compose_hint="install podman-compose",
        runtimes=("crun", "runc"),
    )


def open_podman(
    home: Path,
    *,
    cache_dir: Path | None = None,
    network_allow: Sequence[str] = (),
    ca_bundle: CaBundle | None = None,
) -> Containers:
    """The back end."""
    return Containers(engine(), home, cache_dir=cache_dir, network_allow=network_allow, ca_bundle=ca_bundle)


def obstacle() -> str:
    """Why podman sandboxes cannot work here, as far as a quick look can tell."""
    if not shutil.which("podman"):
        return "podman is not installed"
    return missing_program()
