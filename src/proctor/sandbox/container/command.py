"""The command line of one container. Pure: what is asked for in, arguments out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import SandboxError
from proctor.sandbox import limits as limiting
from proctor.sandbox.base import Limits, SandboxRequest
from proctor.sandbox.certificates import INSIDE
from proctor.sandbox.container.engine import Adjustment, Engine

HOST_NAME = "sandbox"
SHM_BYTES = 64 << 20
CONTROL = "control"
INIT = "/run/.proctor/init"
SOCKET_FOLDER = "/run/.proctor/socket"
"""Where the init and the folder of its socket are inside, both read-only."""
ARGUMENTS = ("container", f"{SOCKET_FOLDER}/{CONTROL}")
CAPABILITIES = {
    "CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "FSETID": 4, "KILL": 5, "SETGID": 6, "SETUID": 7,
    "SETPCAP": 8, "NET_BIND_SERVICE": 10, "SYS_CHROOT": 18, "SETFCAP": 31,
}  # fmt: skip
"""What root inside may do: what package managers need. No device nodes, no raw sockets."""
_SPARE_PIDS = 4
"""Room for the init and its supervisors."""
_STAND_INS = {"memory": "data", "pids": "nproc"}
"""Resource limits of each process, in place of a limit that the engine cannot set."""
_TAGS = {"nproc": "p", "fsize": "z", "data": "m", "nofile": "o"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a container gets from this machine."""

    name: str
    labels: Mapping[str, str]
    program: Path
    folder: Path
    """Holds the socket and nothing else."""
    resolver: Path
    """How names are found inside, once there is a network."""
    ca_bundle: Path | None = None
    """Certificates that the inside is to trust."""
    selinux: bool = False
    """SELinux would keep the init from a socket of ours unless the container is left unlabelled."""


def run_command(engine: Engine, fit: Adjustment, request: SandboxRequest, place: Place) -> list[str]:
    """The command that starts a container with our init as its first process."""
    image = request.root.image
    if not image:
        raise SandboxError(f"a sandbox of {engine.name} needs an image, but {request.name} has none")
    return [
        engine.program, *fit.options, "run", "--detach", "--rm", "--name", place.name,
        *(word for name, value in place.labels.items() for word in ("--label", f"{name}={value}")),
        "--pull", "never", "--hostname", HOST_NAME, "--user", "0:0", "--workdir", "/",
        "--cap-drop", "all", *(word for name in CAPABILITIES for word in ("--cap-add", name)),
        *(word for option in security_options(place) for word in ("--security-opt", option)),
        "--no-healthcheck", "--log-driver", "none", "--shm-size", str(SHM_BYTES),
        "--network", "none",
        *limit_options(request.limits, fit),
        *fit.ulimits,
        *engine.run,
        *(word for source, target in mounts(request, place) for word in ("--mount", _bind(source, target))),
        "--entrypoint", INIT, image, *ARGUMENTS,
    ]  # fmt: skip


def security_options(place: Place) -> tuple[str, ...]:
    """No program gains rights, set-uid or not."""
    return ("no-new-privileges", *(("label=disable",) if place.selinux else ()))


def limit_options(limits: Limits, fit: Adjustment) -> tuple[str, ...]:
    """Limits through control groups, where the engine can set them here."""
    found: list[str] = []
    if "pids" in fit.limits:
        found += ["--pids-limit", "-1" if limits.pids is None else str(limits.pids + _SPARE_PIDS)]
    if "memory" in fit.limits and limits.memory_bytes is not None:
        size = f"{limits.memory_bytes}b"
        found += ["--memory", size, "--memory-swap", size]
    if "cpus" in fit.limits and limits.cpus is not None:
        found += ["--cpus", f"{limits.cpus:g}"]
    return tuple(found)


def mounts(request: SandboxRequest, place: Place) -> Iterator[tuple[Path, str]]:
    """What of the host is bound in, read-only."""
    yield place.program, INIT
    yield place.folder, SOCKET_FOLDER
    if not request.root.compose:
        yield place.resolver, "/etc/resolv.conf"
    if place.ca_bundle:
        yield place.ca_bundle, INSIDE
    for target, source in request.root.binds.items():
        yield source, target


def init_fields(request: SandboxRequest, fit: Adjustment) -> list[str]:
    """The settings of the init: the folder to work in, capabilities to keep and limits of each process."""
    needless = {_STAND_INS[each] for each in fit.limits if each in _STAND_INS}
    limits = limiting.rlimits(request.limits, None)
    mask = sum(1 << number for number in CAPABILITIES.values())
    return [
        "S1",
        f"w{request.root.workdir}",
        f"k{mask}",
        *(f"{_TAGS[name]}{value}" for name, value in limits.items() if name not in needless),
    ]


def _bind(source: Path, target: str) -> str:
    if "," in f"{source}{target}" or '"' in f"{source}{target}":
        raise SandboxError(f"cannot bind {source} into a container: its path has a comma or a quote")
    return f"type=bind,src={source},dst={target},ro"
