"""Files of one root for another: what a stage or an image has, copied, compared or made a folder to mount."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor.disk import opened
from proctor.errors import ImageError
from proctor.sandbox.image import tree
from proctor.sandbox.init.keeper import Keeper

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which files of a root."""

    sources: tuple[str, ...]
    parents: bool = False
    exclude: tuple[str, ...] = field(default=())
    """Regular expressions for names below the target."""

    def described(self) -> dict[str, Any]:
        """For the program that does it."""
        return {"sources": self.sources, "parents": self.parents, "exclude": self.exclude}


async def digest(keeper: Keeper, pid: int, wanted: Wanted) -> tuple[str, bool]:
    """What files of a running sandbox's root are, whenever written; and whether that is one file."""
    found = await _work(keeper, {**wanted.described(), "from": f"/proc/{pid}/root"})
    return str(found["digest"]), bool(found["single"])


async def prune(keeper: Keeper, folder: Path, paths: Sequence[str], *, keep: Sequence[str]) -> None:
    """Remove empty files and folders of a layer, and the folders above them that are empty then."""
    with opened(folder, _FOLDER) as fd:
        asked = {"from": fd if keeper.ids.as_root else 3, "prune": list(paths), "keep": list(keep)}
        await _work(keeper, asked, fd)


async def copy(keeper: Keeper, pid: int, target_pid: int, target: str, wanted: Wanted) -> list[str]:
    """Copy files of one running sandbox into another; the paths written there."""
    asked = {"from": f"/proc/{pid}/root", "to": f"/proc/{target_pid}/root", "target": target}
    if keeper.ids.as_root:
        found = await _as_program({**wanted.described(), **asked, "enter": keeper.pid})
    else:
        found = await _work(keeper, {**wanted.described(), **asked})
    return list(found["names"])


async def _as_program(asked: dict[str, Any]) -> dict[str, Any]:
    """For root, who may open everything, but must be somebody else to write into a sandbox."""
    process = await asyncio.create_subprocess_exec(
        *_command(asked),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={},
    )
    try:
        out, said = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    return _result(int(process.returncode or 0), out.decode(errors="replace"), said.decode(errors="replace"))


def _command(asked: dict[str, Any]) -> list[str]:
    return [sys.executable, "-I", "-S", "-B", tree.__file__, json.dumps(asked)]


def _result(code: int, out: str, said: str) -> dict[str, Any]:
    if code:
        raise ImageError(said.strip().splitlines()[-1] if said.strip() else f"exit code {code}")
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


async def copy_out(keeper: Keeper, pid: int, folder: Path, wanted: Wanted) -> None:
    """Copy files of a running sandbox into a folder that belongs to the inside's root."""
    asked = {"from": f"/proc/{pid}/root", "target": "/"}
    await _into_folder(keeper, folder, {**wanted.described(), **asked})


async def copy_in(keeper: Keeper, source: Path, folder: Path) -> None:
    """Copy a folder of ours into one that belongs to the inside's root."""
    asked = {"sources": ["/"], "target": "/", "from_inside": False, "owner": [0, 0]}
    with opened(source) as fd:
        await _into_folder(keeper, folder, asked, source_fd=fd)


async def _into_folder(
    keeper: Keeper, folder: Path, asked: dict[str, Any], source_fd: int | None = None
) -> None:
    with opened(folder, _FOLDER) as fd:
        target, source = (fd, source_fd) if keeper.ids.as_root else (3, 4)
        places = {"to": target} | ({} if source_fd is None else {"from": source})
        await _work(keeper, {**asked, **places}, fd, source_fd)


async def _work(
    keeper: Keeper, asked: dict[str, Any], folder: int | None = None, source_fd: int | None = None
) -> dict[str, Any]:
    ids = keeper.ids
    if ids.as_root:
        try:
            return await asyncio.to_thread(tree.work, asked, (ids.first_uid, ids.first_gid))
        except tree.TreeError as error:
            raise ImageError(str(error)) from error
        except OSError as error:
            raise ImageError(f"{error.filename}: {error.strerror}") from error
    command = _command(asked)
    if source_fd is not None:  # Python does not start with a folder as its input
        command = ["sh", "-c", 'exec "$@" 4<&0 0</dev/null', "sh", *command]
    return _result(*await keeper.output(command, folder, stdin=source_fd))
