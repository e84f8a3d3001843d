"""Where Harbor is on this machine, and how its Python is started: with a small environment, and no keys."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from proctor.processes import host_environment

VERSION = "0.24.0"
"""The version that was tried; `harbor.lock` pins it and all that it needs."""
ABOUT = "harbor.json"
PACKAGES = "packages"
PYTHON = "bin/python"
SCRIPT = Path(__file__).with_name("script.py")
SETTINGS = {"HARBOR_TELEMETRY": "0", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
"""It reports to nobody, and prices come with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HarborPlace:
    """One installed Harbor."""

    folder: Path
    version: str
    """With the extras that were installed: `0.24.0+modal`."""
    agents: tuple[str, ...]
    environments: tuple[str, ...]

    @property
    def extras(self) -> tuple[str, ...]:
        """Harbor's extras that were installed with it."""
        return tuple(self.version.split("+")[1:])

    @property
    def has_python(self) -> bool:
        """Whether the Python that it was installed with is still there."""
        return (self.folder / PYTHON).exists()


def homes(cache: Path) -> Path:
    """The folder with a folder per version, as `proctor agents install` makes it."""
    return cache / "agents" / "harbor"


def command(folder: Path, *arguments: str) -> list[str]:
    """How its Python runs the script, isolated from variables and folders of this machine."""
    return [str(folder / PYTHON), "-I", str(SCRIPT), str(folder / PACKAGES), *arguments]


def find(cache: Path, version: str = VERSION) -> HarborPlace | None:
    """An installed version; None when it is not there."""
    folder = homes(cache) / version
    try:
        about = json.loads((folder / ABOUT).read_text())
        return HarborPlace(
            folder=folder.absolute(),
            version=version,
            agents=tuple(about["agents"]),
            environments=tuple(about["environments"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def find_all(cache: Path) -> Iterator[HarborPlace]:
    """All that are installed, the version that was tried first."""
    names = sorted(each.parent.name for each in homes(cache).glob(f"*/{ABOUT}"))
    for name in sorted(names, key=lambda each: each.partition("+")[0] != VERSION):
        if not name.startswith(".") and (found := find(cache, name)):
            yield found


def plain_environment(home: Path) -> dict[str, str]:
    """The variables of its process: none of this machine's but the search path, and a home of its own."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "TMPDIR": str(home),
        "LANG": "C.UTF-8",
        **SETTINGS,
    }


_CREDENTIALS: Mapping[str, tuple[str, ...]] = {
    "ack": ("ALIBABA_CLOUD_", "KUBE"),
    "docker": ("DOCKER_",),
    "ec2": ("AWS_",),
    "gke": ("GOOGLE_APPLICATION_", "GOOGLE_CLOUD_", "CLOUDSDK_", "KUBE"),
    "hf-sandbox": ("HF_",),
    "langsmith": ("LANGSMITH_", "LANGCHAIN_"),
    "openshift": ("KUBE",),
    "podman": ("CONTAINER", "DOCKER_", "XDG_RUNTIME_DIR"),
    "skypilot": ("SKYPILOT_", "AWS_", "GOOGLE_APPLICATION_", "GOOGLE_CLOUD_", "KUBE"),
}
"""How the variables begin that an environment may know; for others, with its own name."""


def provider_environment(kind: str) -> dict[str, str]:
    """The variables for one of Harbor's environments: its service's own, and the way to the internet."""
    own = f"{kind.replace('-', '_').upper()}_"
    given = (f"{name}*" for name in _CREDENTIALS.get(kind, (own,)))
    return {**host_environment(*given, network=True), "LANG": "C.UTF-8", **SETTINGS}
