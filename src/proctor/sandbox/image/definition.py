"""What a task's environment asks to be made: an image, or a Dockerfile and its context, and how to run it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from proctor.model.task import TaskEnvironment
from proctor.sandbox.base import Root


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One root to make."""

    where: str
    """For messages."""
    image: str | None = None
    folder: Path | None = None
    dockerfile: Path | None = None
    target: str = ""
    """The stage of the Dockerfile; the last one without."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""
    user: str = ""
    binds: Mapping[str, Path] = field(default_factory=dict)
    """Path inside → folder of the task, read-only there."""
    own_entrypoint: bool = False
    """A compose file says what to start, and it only waits: the image's entrypoint is not used."""
    folders: tuple[str, ...] = ()
    """Folders that must be there."""

    def dressed(self, root: Root) -> Root:
        """A root with what is said here about how commands run in it."""
        if self.own_entrypoint:
            root = replace(root, entrypoint=())
        if not (self.env or self.workdir or self.user or self.binds):
            return root
        described = [root.digest, sorted(self.env.items()), self.workdir, self.user, sorted(self.binds)]
        return replace(
            root,
            env={**root.env, **self.env},
            workdir=self.workdir or root.workdir,
            user=self.user or root.user,
            binds={**root.binds, **self.binds},
            digest=hashlib.sha256(json.dumps(described).encode()).hexdigest(),
        )


def definition_of(wanted: TaskEnvironment) -> Definition:
    """What an environment asks for; ImageError when it takes several containers."""
    if wanted.compose:
        from proctor.sandbox.image.single_service import single_service

        return single_service(wanted)
    place = wanted.dockerfile or wanted.folder
    return Definition(
        where=str(place) if place else "the task's environment",
        image=wanted.image,
        folder=wanted.folder,
        dockerfile=wanted.dockerfile,
    )
