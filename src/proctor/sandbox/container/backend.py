"""The back end of containers: what all sandboxes of one engine share in this process."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from proctor import owner
from proctor.errors import SandboxError
from proctor.sandbox import reaper
from proctor.sandbox.base import SandboxRequest
from proctor.sandbox.certificates import CaBundle
from proctor.sandbox.container import adjust, leftovers
from proctor.sandbox.container.command import HostParts
from proctor.sandbox.container.engine import Adjustment, Engine, call, end, engine_environment
from proctor.sandbox.container.sandbox import ContainerSandbox
from proctor.sandbox.init.served import ServedBackend
from proctor.sandbox.network import Launch
from proctor.sandbox.network_rules import RESOLVER
from proctor.sandbox.programs import init_program

_SELINUX = Path("/sys/fs/selinux/enforce")


class Containers(ServedBackend):
    """The back end: one engine, one folder of sockets, one watch over the disk."""

    def __init__(
        self,
        engine: Engine,
        home: Path,
        *,
        cache_dir: Path | None = None,
        network_allow: Sequence[str] = (),
        ca_bundle: CaBundle | None = None,
    ) -> None:
        folder = f"{engine.name}-sandboxes"
        super().__init__(home, folder, cache_dir=cache_dir, network_allow=network_allow, ca_bundle=ca_bundle)
        self.engine = engine
        self.name = engine.name
        self._program: Path | None = None
        self._fit: Adjustment | None = None

    def sandbox(self, request: SandboxRequest) -> ContainerSandbox:
        """One sandbox, not yet started."""
        return ContainerSandbox(self, request)

    async def reap(self) -> tuple[str, ...]:
        """Remove what killed processes left."""
        return await leftovers.reap(self.engine, await self.adjustment(), self.state_dir)

    async def _remove_folder(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self._program = None

    async def adjustment(self) -> Adjustment:
        """The options that the engine needs here; tried once and remembered."""
        async with self._opening:
            if self._fit is None:
                self._fit = await adjust.remembered(self)
            return self._fit

    async def host_parts(self, request: SandboxRequest) -> HostParts:
        """A name, labels and a folder for one sandbox."""
        if self._program is None:
            self._program = await asyncio.to_thread(init_program)
        number = next(self._numbers)
        folder = self.open_folder() / f"s{number}"
        folder.mkdir(mode=0o711)
        labels = {
            leftovers.OWNER: owner.owner_name(),
            leftovers.PLACE: leftovers.place_name(),
            leftovers.LOCK: str(reaper.lock_of(self.folder)),
            "proctor.sandbox": request.name,
            **{f"proctor.{name}": value for name, value in request.labels.items()},
        }
        name = f"proctor-{owner.owner_name()}-{id(self):x}-{number}"
        return HostParts(
            name=name,
            labels=labels,
            program=self._program,
            folder=folder,
            resolver=self.resolver_file(),
            ca_bundle=self.ca_bundle.file_in(self.cache_dir) if self.ca_bundle else None,
            selinux=_SELINUX.exists(),
        )

    def resolver_file(self) -> Path:
        """A file that all containers share, which says how names are found once there is a network."""
        file = self.cache_dir / f"resolv-{RESOLVER}.conf"
        if not file.exists():
            self.cache_dir.mkdir(parents=True, exist_ok=True)
            file.write_text(f"nameserver {RESOLVER}\n")
            file.chmod(0o644)
        return file

    def as_root(self) -> Sequence[str] | None:
        """What to put before a command that must be root of the containers; None when there is no way."""
        if os.geteuid() == 0:
            return ()
        return (self.engine.program, "unshare") if self.name == "podman" else None

    def launch(self) -> Launch | None:
        """What runs programs that may enter the networks of the containers; None when there is no way."""
        enter = self.as_root()
        if enter is None:
            return None

        async def launch(argv: Sequence[str], fds: Sequence[int]) -> int:
            try:
                stdin, stdout, stderr = fds
                process = await asyncio.create_subprocess_exec(
                    *enter,
                    *argv,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    start_new_session=True,
                    env=engine_environment(),
                )
            finally:
                for fd in fds:
                    os.close(fd)
            try:
                return await process.wait()
            except BaseException:
                await end(process)
                raise

        return launch

    async def ask(self, *arguments: str) -> str:
        """The answer of the engine to a question; SandboxError when it has none."""
        said = await call([self.engine.program, *arguments])
        if said.code:
            raise SandboxError(f"{self.name} does not answer: {said.reason}")
        return said.out.strip()
