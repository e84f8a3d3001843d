"""Where installed agents are: a folder per name and version, renamed when it is whole."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from proctor.agents.installed.recipes import Recipe, Say
from proctor.disk import opened
from proctor.errors import NotFoundError, UsageError

_ABOUT = "agent.json"
_VERSION = re.compile(r"\d[0-9A-Za-z.+_-]{0,80}")
_INTERPRETER = 3
"""The kind of program header that names the loader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """One version of an agent on this machine."""

    name: str
    version: str
    size_bytes: int
    loader: str
    """The loader of the C library that its programs need inside; empty when they need none."""


def place_of(cache: Path, name: str, version: str) -> Path:
    """Where a version of an agent is, or would be."""
    if not _VERSION.fullmatch(version):
        raise UsageError(f"'{version}' is not a version such as 1.2.3")
    return cache / "agents" / name / version


def find(cache: Path, name: str, version: str) -> Installed | None:
    """What is known of an installed version; None when it is not installed."""
    try:
        return Installed(**json.loads((place_of(cache, name, version) / _ABOUT).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def versions(cache: Path, name: str) -> list[Installed]:
    """The versions of an agent that are installed."""
    places = sorted((cache / "agents" / name).glob(f"*/{_ABOUT}"))
    found = [find(cache, name, each.parent.name) for each in places if not each.parent.name.startswith(".")]
    return [each for each in found if each]


def install(cache: Path, name: str, version: str, recipe: Recipe, say: Say) -> Installed:
    """Install it, unless it is; another process that does the same is waited for."""
    target = place_of(cache, name, version)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _alone(target):
        if found := find(cache, name, version):
            return found
        for left in (target, *target.parent.glob(f".{version}~*")):
            shutil.rmtree(left, ignore_errors=True)  # of a process that was killed
        made = Path(tempfile.mkdtemp(prefix=f".{version}~", dir=target.parent))
        try:
            recipe.build(made, version, say)
            found = Installed(
                name=name, version=version, size_bytes=_shared(made), loader=loader_of(made, recipe)
            )
            (made / _ABOUT).write_text(json.dumps(asdict(found)))
            made.rename(target)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return found


def remove(cache: Path, name: str, version: str = "") -> list[Installed]:
    """Remove a version, or all of them; NotFoundError when there is none."""
    found = [each for each in versions(cache, name) if version in {"", each.version}]
    if not found:
        raise NotFoundError(f"{name}{f' {version}' if version else ''} is not installed")
    for each in found:
        target = place_of(cache, name, each.version)
        with _alone(target):
            away = Path(tempfile.mkdtemp(prefix=f".{each.version}~", dir=target.parent))
            target.rename(away / "agent")
            shutil.rmtree(away)
    return found


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """One process at a time for a version; the lock goes with its process."""
    with opened(target.parent / f".{target.name}.lock", os.O_RDWR | os.O_CREAT) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield


def _shared(folder: Path) -> int:
    """Let every account of a sandbox read it; how large it is, files with several names counted once."""
    seen: dict[tuple[int, int], int] = {}
    folder.chmod(0o755)
    for place, folders, files in os.walk(folder):
        for each in (*folders, *files):
            path = Path(place) / each
            about = path.lstat()
            if stat.S_ISLNK(about.st_mode):
                continue
            runs = about.st_mode & 0o111 or (stat.S_ISREG(about.st_mode) and _is_program(path))
            path.chmod(stat.S_IMODE(about.st_mode) | (0o555 if runs else 0o444))
            if stat.S_ISREG(about.st_mode):
                seen[about.st_dev, about.st_ino] = about.st_size
    return sum(seen.values())


def _is_program(path: Path) -> bool:
    """Some packages make their programs executable when they are first run, which is too late here."""
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def loader_of(folder: Path, recipe: Recipe) -> str:
    """What must be inside for the recipe's first program to start; empty for a static one or a script."""
    program = Path(recipe.argv(str(folder))[0])
    with program.open("rb") as file:
        head = file.read(64)
        if head[:5] != b"\x7fELF\x02":
            return ""

        def number(data: bytes, at: int, size: int) -> int:
            return int.from_bytes(data[at : at + size], "little" if head[5] == 1 else "big")

        start, each, count = number(head, 32, 8), number(head, 54, 2), number(head, 56, 2)
        file.seek(start)
        table = file.read(each * count)
        for at in range(0, len(table), each):
            if number(table, at, 4) == _INTERPRETER:
                file.seek(number(table, at + 8, 8))
                return file.read(number(table, at + 32, 8)).rstrip(b"\0").decode()
    return ""
