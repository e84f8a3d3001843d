"""Look through a saved state for changes that touch what a verifier executes or loads."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor.sandbox.lower import Lower
from proctor.trial.task.second_look.changes import (
    MAX_READ_BYTES,
    Entry,
    contents,
    entries,
    is_system,
    summary,
)
from proctor.trial.task.second_look.configuration import ACCOUNTS, CACHE
from proctor.trial.task.second_look.packages import STATUS, is_record, packages_of, without
from proctor.trial.task.second_look.setting import Look, Undo
from proctor.trial.task.second_look.tools import TaskText

_READ = (".pth", "/entry_points.txt", "pyproject.toml", "setup.cfg", "tox.ini", "__init__.py")
_MOST_FRESH = 400
_OFTEN_LINKS = {"bin", "lib", "lib64", "sbin"}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Findings:
    """What changed, and what of it a second verdict is to do without."""

    summary: Mapping[str, Any]
    undone: Sequence[Undo] = ()
    fresh: Sequence[str] = ()
    """Folders of compiled modules to empty before any verdict."""

    @property
    def touching(self) -> list[Undo]:
        """The changes that can have helped a verdict."""
        return [each for each in self.undone if not each.harmless]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is known of a task's sandbox besides its state."""

    workdir: str
    env: Mapping[str, str]
    image: Lower | None
    text: Callable[[], TaskText]
    given: Callable[[str], bytes | None]
    online: bool
    covered: frozenset[str] = frozenset()
    """Paths of the state that the sandbox itself made, under something that is mounted there."""
    replaced: Sequence[str] = ()
    """Files that the engine gave to the inside, and that are no part of the state, if they changed."""


def find(state: Path | bytes, around: Surroundings) -> Findings:
    """What the state says."""
    found = [each for each in entries(state) if each.path not in around.covered]
    found += [Entry(path, "file") for path in around.replaced]
    said = summary(found, around.workdir, around.image)
    if around.image is None or not _worth(found, around, bool(said)):
        return Findings(said)
    from proctor.trial.task.second_look.rules import caches, undoing

    look = _look(state, found, around, around.image)
    undone = undoing(found, look)
    fresh = caches(found, look)
    undone += _forgotten(undone, found, look)
    return Findings(said, undone, fresh[:_MOST_FRESH])


def _worth(found: Sequence[Entry], around: Surroundings, system: bool) -> bool:
    """Whether anything is there that a rule could be about: most attempts end here."""
    if system:
        return True
    workdir = around.workdir.strip("/")
    for entry in found:
        if entry.kind == "folder":
            if entry.opaque or entry.path in _OFTEN_LINKS:
                return True
            continue
        if not entry.path.startswith(f"{workdir}/") and not entry.path.startswith(
            ("tmp/", "logs/", "tests/")
        ):
            return True
        if entry.path.endswith((".py", ".pyc", ".so", ".ini", ".cfg", ".toml")):
            return True
    return False


def _look(state: Path | bytes, found: Sequence[Entry], around: Surroundings, image: Lower) -> Look:
    workdir = around.workdir.strip("/")
    before = {
        each.path
        for each in found
        if each.kind == "file" and each.size <= MAX_READ_BYTES and is_system(each.path, workdir)
        if image.kind(each.path) == "file"
    }
    texts: dict[str, bytes] = {}
    same: set[str] = set()
    for path, content in contents(state, lambda path: path in before or _is_read(path)):
        if path in before and image.read(path) == content:
            same.add(path)
        if _is_read(path):
            texts[path] = content
    path = around.env.get("PATH") or PATH
    return Look(
        image=image,
        text=around.text(),
        workdir=workdir,
        path=tuple(dict.fromkeys(image.real(each) for each in path.split(":") if each.startswith("/"))),
        homes=_homes(found, around.env),
        packages=packages_of(found, texts, image),
        contents=texts,
        given=around.given,
        online=around.online,
        same=frozenset(same),
    )


def _is_read(path: str) -> bool:
    name = posixpath.basename(path)
    return (
        path in {CACHE, ACCOUNTS}
        or path.endswith(_READ)
        or name.startswith("__editable__")
        or is_record(path)
    )


def _homes(found: Sequence[Entry], env: Mapping[str, str]) -> tuple[str, ...]:
    users = {"/".join(each.path.split("/")[:2]) for each in found if each.path.startswith("home/")}
    own = env.get("HOME", "").strip("/")
    return tuple(dict.fromkeys(["root", *([own] if own else []), *sorted(users)]))


def _forgotten(undone: Sequence[Undo], found: Sequence[Entry], look: Look) -> list[Undo]:
    """Where a package's program goes that the image lacks, so does the note that it is installed."""
    gone = {
        name
        for each in undone
        if (name := look.packages.paths.get(each.entry.path)) and look.image.kind(each.entry.path) is None
    }
    status = next((each for each in found if each.path == STATUS), None)
    if not gone or status is None:
        return []
    return [Undo(status, "lists packages", content=without(look.contents[STATUS], gone), harmless=True)]
