"""Which images the sandboxes of a run were made from, by the digests in its records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proctor.runfolder.read import RunData, once

HOST = "this machine's own system (host root)"


@dataclass(frozen=True, slots=True)
class UsedImage:
    """One image, or the host's own system, and who ran on it."""

    name: str
    digest: str
    """What a registry or a build calls it; empty when only the root is known."""
    host: bool
    root: str
    tasks: tuple[str, ...]
    trials: int

    @property
    def title(self) -> str:
        """For people."""
        return (
            HOST if self.host and not self.name else self.name or f"built here, root {self.root[:12] or '?'}"
        )

    def to_mapping(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "name": self.name,
            "digest": self.digest,
            "host": self.host,
            "root": self.root,
            "tasks": list(self.tasks),
            "trials": self.trials,
        }


@once
def images_of(data: RunData) -> tuple[UsedImage, ...]:
    """In the order of their first trial; nothing for runs whose records do not tell."""
    found: dict[tuple[str, str, bool, str], list[str]] = {}
    for trial in data.trials:
        if trial.counted and trial.counted.image:
            found.setdefault(identity(trial.counted.image), []).append(trial.planned.subject)
    return tuple(
        UsedImage(*key, tasks=tuple(dict.fromkeys(subjects)), trials=len(subjects))
        for key, subjects in found.items()
    )


def identity(image: Mapping[str, Any]) -> tuple[str, str, bool, str]:
    """Name, digest, whether it is the host's system, and the digest of the root, as far as recorded."""
    name, digest, root = (str(image.get(part) or "") for part in ("name", "digest", "root"))
    return name, digest, bool(image.get("host")), root
