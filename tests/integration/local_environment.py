"""An environment of Harbor's that needs no service: a folder as root, in namespaces of its own per command.

It is imported by Harbor's Python in the tests of `harbor:` sandboxes.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities

_ENTER = """\
root=$1; cwd=$2; command=$3
for each in usr etc dev; do mkdir -p "$root/$each"; mount --rbind "/$each" "$root/$each"; done
mkdir -p "$root/proc" "$root/tmp" "$root/app"; mount -t proc proc "$root/proc"
for each in bin sbin lib lib64; do [ -e "$root/$each" ] || ln -s "usr/$each" "$root/$each"; done
exec chroot "$root" /bin/bash -c 'mkdir -p "$1" && cd "$1" && eval "$2"' bash "$cwd" "$command"
"""


class LocalEnvironment(BaseEnvironment):
    """Makes a folder, and enters it for each command."""

    @staticmethod
    def type() -> str:
        return "local"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True)

    def _validate_definition(self) -> None:
        pass

    async def start(self, force_build: bool) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="local-environment-"))
        for name in ("data", "entries"):  # what a build of the task's Dockerfile would copy
            if (self.environment_dir / name).is_dir():
                shutil.copytree(self.environment_dir / name, self.root / "app" / name)

    async def stop(self, delete: bool) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None) -> ExecResult:
        """In new namespaces of processes and mounts; whoever is asked for, it is root there."""
        enter = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]
        process = await asyncio.create_subprocess_exec(
            *enter, "sh", "-c", _ENTER, "sh", str(self.root), cwd or "/app", command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **(self._merge_env(env) or {})},
        )  # fmt: skip
        try:
            out, err = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            raise
        return ExecResult(stdout=out.decode(), stderr=err.decode(), return_code=process.returncode or 0)

    async def upload_file(self, source_path, target_path) -> None:
        target = self.root / str(target_path).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source_path, target)

    async def download_file(self, source_path, target_path) -> None:
        shutil.copy(self.root / str(source_path).lstrip("/"), target_path)

    async def upload_dir(self, source_dir, target_dir) -> None:
        raise NotImplementedError

    async def download_dir(self, source_dir, target_dir) -> None:
        raise NotImplementedError
