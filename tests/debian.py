"""A small real Debian system, made once for all test processes of a session."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

_PACKAGES = "curl,passwd,python3"
_LEFT_OUT = ("/usr/share/locale/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/doc/*")


def debian_tar(base: Path) -> Path:
    """The file system as a tar, as the base images of registries are made: what tasks use is in it."""
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "debian"
    folder.mkdir(exist_ok=True)
    file = folder / "root.tar"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            making = folder / "making.tar"
            subprocess.run(
                [
                    "mmdebstrap", "--quiet", "--variant=essential", f"--include={_PACKAGES}",
                    "--dpkgopt=force-unsafe-io",
                    *(f"--dpkgopt=path-exclude={each}" for each in _LEFT_OUT), "bookworm", str(making),
                ],
                check=True,
                capture_output=True,
            )  # fmt: skip
            making.rename(file)
    return file
