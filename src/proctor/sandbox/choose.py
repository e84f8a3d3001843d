"""From a name to a back end. New ones are one line in the table."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import SandboxError, UsageError
from proctor.sandbox.base import Backend


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of sandbox: how to open it, and a quick look at whether it could work here."""

    open: Callable[[Path], Backend]
    obstacle: Callable[[], str]
    """Why it cannot work here, or nothing."""


def _open_bubblewrap(home: Path) -> Backend:
    from proctor.sandbox.bubblewrap import Bubblewrap

    return Bubblewrap(home)


def _bubblewrap_obstacle() -> str:
    from proctor.sandbox.probe import obstacle

    return obstacle()


def _open_fake(home: Path) -> Backend:
    from proctor.sandbox.fake import Fake

    del home
    return Fake()


BACKENDS: dict[str, Kind] = {
    "bubblewrap": Kind(open=_open_bubblewrap, obstacle=_bubblewrap_obstacle),
    "fake": Kind(open=_open_fake, obstacle=lambda: ""),
}
AUTO = ("bubblewrap",)
"""What `auto` tries, in this order."""


def choose(name: str) -> str:
    """The back end that a name stands for; `auto` is the first that can work here."""
    if name == "auto":
        obstacles = {each: BACKENDS[each].obstacle() for each in AUTO}
        for each, obstacle in obstacles.items():
            if not obstacle:
                return each
        reasons = "; ".join(f"{each}: {obstacle}" for each, obstacle in obstacles.items())
        raise SandboxError(f"no kind of sandbox works here ({reasons}); `proctor doctor` says more")
    if name not in BACKENDS:
        near = difflib.get_close_matches(name, [*BACKENDS, "auto"], n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise UsageError(f"'{name}' is not a sandbox; there are auto, {', '.join(sorted(BACKENDS))}{hint}")
    return name


def open_backend(name: str, home: Path) -> Backend:
    """Open a back end by name; `home` is where its state and caches go."""
    return BACKENDS[choose(name)].open(home)
