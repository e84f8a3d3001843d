"""What changed in a sandbox, saved as a tar, moved away as a layer, or put back before a start.

Trees of the inside belong to its own users and hold whatever it wrote: they are touched by programs in the
sandboxes' user namespace only, reached through a descriptor of the state folder, and never followed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from proctor.disk import opened
from proctor.errors import SandboxError
from proctor.sandbox.init.keeper import Keeper
from proctor.sandbox.init.session import Session

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_BLOCK = 512
_TAR = (
    'ulimit -c 0; ulimit -f "$1" && exec tar --create --file=- --directory="$2" '
    "--numeric-owner --sparse --sort=name --one-file-system --warning=none --format=posix "
    "--pax-option=delete=atime,delete=ctime,delete=mtime --xattrs "
    "'--xattrs-include=trusted.overlay.opaque' '--xattrs-include=user.overlay.opaque' ."
)
"""A file size limit stops what would be too large: tar then dies of a signal."""
_NEEDS_TAR = 2
TAR_DONE = (0, 1)
"""1: a file could not be read entirely; the rest is there."""


def tar_command(folder: str, max_bytes: int) -> list[str]:
    """What writes the changes in a folder as a tar, unless they are too large."""
    return ["sh", "-c", _TAR, "sh", str(max(1, max_bytes // _BLOCK)), folder]


async def write_whole(target: Path, write: Callable[[int], Awaitable[bool]]) -> bool:
    """Have a file written through a descriptor, and kept if `write` says so; else there is none."""
    place = str(target)
    parent, _, name = place.rpartition("/")
    writing = f"{parent or '.'}/.{name}.{secrets.token_hex(4)}"
    out = os.open(writing, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    kept = False
    try:
        kept = await write(out)
        if kept:
            os.replace(writing, place)  # noqa: PTH105 - once per trial
    finally:
        os.close(out)
        if not kept:
            os.unlink(writing)  # noqa: PTH108 - same
    return kept


async def save(keeper: Keeper, session: Session, folder: Path, target: Path, *, max_bytes: int) -> bool:
    """End what runs in the sandbox whose state is in `folder`, then write its changes.

    False when they are too much to keep.
    """

    async def write(out: int) -> bool:
        with opened(folder, _FOLDER) as state:
            with session.ending() as quiet:
                code = await keeper.archive(state, out, max_bytes, quiet)
            if code == _NEEDS_TAR:
                await session.end_processes()
                code = await _save_with_tar(keeper, state, out, max_bytes)
        return code == 0

    return await write_whole(target, write)


async def _save_with_tar(keeper: Keeper, state: int, out: int, max_bytes: int) -> int:
    os.ftruncate(out, 0)
    os.lseek(out, 0, os.SEEK_SET)
    with opened(os.devnull, os.O_RDWR) as null:
        code = await keeper.run(tar_command("/proc/self/fd/3/upper", max_bytes), [null, out, null, state])
    return 0 if code in TAR_DONE else code


async def restore(keeper: Keeper, folder: Path, state: Path) -> None:
    """Fill the state folder of a sandbox that has not started with the changes saved from another."""
    if not state.is_file():
        raise SandboxError(f"the saved state {state} does not exist")
    await make_folders(keeper, folder / "upper", folder / "work")
    await unpack_below(keeper, state, folder, "upper")


async def make_folders(keeper: Keeper, *paths: Path) -> None:
    """Make folders that belong to the inside's root."""
    ids = keeper.ids
    if not ids.as_root:
        if await keeper.run(["mkdir", "-m", "755", "--", *map(str, paths)]):
            raise SandboxError(f"cannot make {', '.join(map(str, paths))} for the users of the sandboxes")
        return
    for path in paths:
        path.mkdir(mode=0o755)
        os.chown(path, ids.first_uid, ids.first_gid)


async def unpack_below(keeper: Keeper, archive: Path | int, folder: Path, name: str) -> None:
    """Unpack a tar into the existing folder `name` of `folder`, for the users of the inside."""
    given = contextlib.nullcontext(archive) if isinstance(archive, int) else opened(archive, os.O_RDONLY)
    with given as source, opened(folder / name, _FOLDER) as target:
        if keeper.ids.as_root:
            problem = await asyncio.to_thread(_unpack_here, source, target, keeper)
        else:
            problem = await _unpack_there(keeper, source, target)
    if problem:
        raise SandboxError(f"cannot unpack {archive if isinstance(archive, Path) else 'a layer'}: {problem}")


async def move(keeper: Keeper, folder: Path, target: Path) -> None:
    """Move the changes of a sandbox that will not run again to `target`, as a layer."""
    if keeper.ids.as_root:
        (folder / "upper").rename(target)
        return
    with (
        opened(os.devnull, os.O_RDWR) as null,
        opened(folder, _FOLDER) as state,
        opened(target.parent, _FOLDER) as parent,
    ):
        command = ["mv", "-T", "--", "/proc/self/fd/3/upper", f"/proc/self/fd/0/{target.name}"]
        if await keeper.run(command, [parent, null, null, state]):
            raise SandboxError(f"cannot move the changes of a sandbox to {target}")


def _unpack_here(source: int, target: int, keeper: Keeper) -> str:
    from proctor.sandbox import unpack

    try:
        with open(source, "rb", closefd=False) as stream:
            unpack.unpack(stream, target, first_uid=keeper.ids.first_uid, first_gid=keeper.ids.first_gid)
    except unpack.UnpackError as error:
        return str(error)
    return ""


async def _unpack_there(keeper: Keeper, source: int, target: int) -> str:
    from proctor.sandbox import unpack

    command = [sys.executable, "-I", "-S", "-B", unpack.__file__]
    code, _, said = await keeper.output(command, target, stdin=source)
    if code == 0:
        return ""
    return said.strip().splitlines()[-1] if said.strip() else f"exit code {code}"
