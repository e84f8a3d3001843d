"""Which Proctor made a run, and whether this one may execute it."""

from __future__ import annotations

import platform
from functools import cache

from proctor.errors import UsageError
from proctor.model.run import RunInfo


def refuse_other_version(info: RunInfo) -> None:
    """UsageError where another Proctor made a run: what it planned may mean something else here."""
    made_by, own = info.versions.get("proctor", ""), own_version()
    if made_by and made_by.split(".")[:2] != own.split(".")[:2]:
        raise UsageError(
            f"Proctor {made_by} made it, and this worker is Proctor {own}; upgrade the older one"
        )


def versions() -> dict[str, str]:
    """What made the numbers: Proctor and Python."""
    return {"proctor": own_version(), "python": platform.python_version()}


@cache
def own_version() -> str:
    """Read from the package's metadata, which takes longer than planning a small run."""
    from importlib.metadata import version

    return version("proctor-bench")
