"""What changed in a container, saved as a tar, and put into another one between making and starting it.

The engine keeps changes in a folder of their own. It holds whatever the inside wrote, so that nothing in it
is followed, and what runs on it is root of the containers only.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from proctor.errors import SandboxError
from proctor.sandbox import unpack
from proctor.sandbox.container.engine import Adjustment, Engine, call, end
from proctor.sandbox.lower import Lower

_BLOCK = 512
_SAVE = (
    'ulimit -c 0; ulimit -f "$1" && exec tar --create --file=- --directory="$2" '
    "--numeric-owner --sparse --sort=name --one-file-system --warning=none --format=posix "
    "--pax-option=delete=atime,delete=ctime,delete=mtime --xattrs "
    "'--xattrs-include=trusted.overlay.opaque' '--xattrs-include=user.overlay.opaque' ."
)
_TAR_DONE = (0, 1)
"""1: a file could not be read entirely; the rest is there."""


async def save(upper: Path, target: Path, *, max_bytes: int, enter: Sequence[str]) -> bool:
    """Write the changes as a tar; False when they are too much to keep."""
    writing = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    fd = os.open(writing, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    command = [*enter, "sh", "-c", _SAVE, "sh", str(max(1, max_bytes // _BLOCK)), str(upper)]
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=fd, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            code = await process.wait()
        except BaseException:
            await end(process)
            raise
        if code in _TAR_DONE:
            writing.replace(target)
        return code in _TAR_DONE
    finally:
        os.close(fd)
        writing.unlink(missing_ok=True)


async def restore(
    engine: Engine, fit: Adjustment, name: str, state: Path, enter: Sequence[str] | None
) -> None:
    """Put saved changes into a container that was made and has not started."""
    if enter is None:
        raise SandboxError(f"only root can put saved changes into a container of {engine.name}")
    asked = [engine.program, *fit.options, "inspect", "--format", "{{.GraphDriver.Data.UpperDir}}", name]
    said = await call(asked)
    upper = said.out.strip()
    if said.code or not upper.startswith("/"):
        raise SandboxError(f"{engine.name} does not say where the changes of {name} go: {said.reason}")
    opaque = "user.overlay.opaque" if enter else "trusted.overlay.opaque"
    command = [*enter, sys.executable, "-I", "-S", "-B", unpack.__file__, upper, opaque]
    with state.open("rb") as archive:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=archive, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        try:
            _, words = await process.communicate()
        except BaseException:
            await end(process)
            raise
    if process.returncode:
        raise SandboxError(f"cannot unpack {state}: {words.decode(errors='replace').strip()[-500:]}")


def lower(upper: Path) -> Lower | None:
    """The layers below a folder of changes, as the engines write them down beside it."""
    with suppress(OSError):
        text = (upper.parent / "lower").read_text()
        layers = [(upper.parents[1] / each).resolve() for each in text.strip().split(":") if each]
        return Lower(layers) if layers else None
    return None
