"""The other services of a compose project: commands in them, and copies of their files.

They were started by the engine and have no init of ours, so the engine's own `exec` and `cp` are used. What
`cp` sends is a tar that the service may have shaped: only plain files and folders are taken from it.
"""

from __future__ import annotations

import asyncio
import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from proctor.errors import SandboxError
from proctor.sandbox.base import Download, ExecResult
from proctor.sandbox.container.engine import Adjustment, Engine, ask, call, end

PROJECT = "proctor.project"
_SERVICE = "com.docker.compose.service"
_CHUNK = 1 << 18
_OVERHEAD_BYTES = 16 << 20
"""What a tar may have beyond the content of its files."""
_COPY_S = 300.0
_TIMED_OUT = 137


class Service:
    """One service beside the main one; see `proctor.sandbox.base.Companion`."""

    def __init__(self, engine: Engine, fit: Adjustment, project: str, name: str) -> None:
        self._command = (engine.program, *fit.options)
        self._project = project
        self._name = name

    async def exec(
        self, argv: Sequence[str], *, user: str | None = None, timeout_s: float | None = None
    ) -> ExecResult:
        """Run a command there; at its time limit it is left behind, and ends with its service."""
        options = ["--user", user] if user else []
        try:
            async with asyncio.timeout(timeout_s):
                said = await call(
                    [*self._command, "exec", *options, await self._container(), *argv], timeout_s=None
                )
        except TimeoutError:
            return ExecResult(exit_code=_TIMED_OUT, timed_out=True)
        return ExecResult(exit_code=said.code, stdout=said.out.encode(), stderr=said.err.encode())

    async def download(self, source: str, target: Path, *, max_bytes: int) -> Download:
        """Copy a file or a folder's content out; FileNotFoundError when nothing is there."""
        container = await self._container()
        with tempfile.TemporaryFile() as packed:
            process = await asyncio.create_subprocess_exec(
                *self._command, "cp", f"{container}:{source}", "-",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
            assert process.stdout is not None
            try:
                async with asyncio.timeout(_COPY_S):
                    while data := await process.stdout.read(_CHUNK):
                        packed.write(data)
                        if packed.tell() > max_bytes + _OVERHEAD_BYTES:
                            raise SandboxError(f"{self._name}:{source} is larger than {max_bytes} bytes")
                    code = await process.wait()
            except TimeoutError:
                raise SandboxError(f"{self._name}:{source} was not copied within {_COPY_S:g} s") from None
            finally:
                await end(process)
            if code:
                raise FileNotFoundError(f"{source} does not exist in service {self._name}")
            packed.seek(0)
            return take_out(packed, target, max_bytes)

    async def _container(self) -> str:
        filters = [f"label={PROJECT}={self._project}", f"label={_SERVICE}={self._name}"]
        asked = [word for each in filters for word in ("--filter", each)]
        said = await ask([*self._command, "ps", *asked, "--format", "{{.ID}}"])
        if not said.out.strip():
            raise SandboxError(f"the service '{self._name}' is not running")
        return said.out.split()[0]


def take_out(packed: object, target: Path, max_bytes: int) -> Download:
    """Write the plain files of a tar of one file or folder to a path that is not there yet."""
    files = used = dropped = 0
    names: list[str] = []
    try:
        with tarfile.open(fileobj=packed, mode="r:") as archive:  # type: ignore[call-overload]
            for member in archive:
                parts = PurePosixPath(member.name).parts
                if ".." in parts or PurePosixPath(member.name).is_absolute():
                    raise SandboxError(f"a copy names '{member.name[:100]}', which leads out of it")
                place = target.joinpath(*parts[1:])
                if member.isdir():
                    place.mkdir(parents=True, exist_ok=True)
                elif member.isreg() and used + member.size <= max_bytes:
                    place.parent.mkdir(parents=True, exist_ok=True)
                    opened = archive.extractfile(member)
                    assert opened is not None
                    with opened, place.open("xb") as sink:
                        shutil.copyfileobj(opened, sink)
                    files, used = files + 1, used + member.size
                else:
                    dropped += 1
                    names += [member.name] if dropped <= 100 else []
    except (tarfile.TarError, OSError, EOFError) as error:
        raise SandboxError(f"a copy could not be read: {error}") from error
    return Download(files=files, bytes=used, dropped=tuple(names), dropped_count=dropped)
