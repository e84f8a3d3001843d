"""What a sandbox's root had before anything ran in it: a read-only look at its layers from outside.

The layers are ours and unchanged; links in them are read and never followed out of them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from proctor.sandbox.base import Sandbox

_OPAQUE = ("trusted.overlay.opaque", "user.overlay.opaque")
_MAX_READ_BYTES = 64 << 20
_MOST_LINKS = 8


@dataclass(frozen=True, slots=True)
class Lower:
    """Layers, the topmost first, and folders that are bound over them. Paths are relative to the root."""

    layers: Sequence[Path]
    binds: Sequence[tuple[Path, str]] = ()

    def kind(self, path: str) -> str | None:
        """file, folder, link or other; None when there is nothing."""
        place = self.place(path)
        if place is None:
            return None
        mode = os.lstat(place).st_mode
        if stat.S_ISREG(mode):
            return "file"
        if stat.S_ISDIR(mode):
            return "folder"
        return "link" if stat.S_ISLNK(mode) else "other"

    def read(self, path: str, most: int = _MAX_READ_BYTES) -> bytes | None:
        """The content of a plain file; None when it is none, or larger than `most`."""
        place = self.place(path)
        if place is None:
            return None
        with suppress(OSError):
            fd = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(fd, "rb") as file:
                found = os.fstat(fd)
                if stat.S_ISREG(found.st_mode) and found.st_size <= most:
                    return file.read()
        return None

    def link(self, path: str) -> str | None:
        """Where a link points."""
        place = self.place(path)
        with suppress(OSError):
            return os.readlink(place) if place else None  # noqa: PTH115 - many per trial
        return None

    def names(self, folder: str) -> set[str]:
        """What is in a folder, over all layers."""
        places = [source for source, target in self.binds if target.strip("/") == folder]
        found: set[str] = set()
        for place in (*places, *(layer / folder for layer in self.layers)):
            with suppress(OSError), os.scandir(place) as listed:
                found.update(each.name for each in listed)
        return {name for name in found if self.place(f"{folder}/{name}".lstrip("/"))}

    def real(self, path: str) -> str:
        """The path without links among its folders, as /bin is often /usr/bin."""
        for _ in range(_MOST_LINKS):
            parts = path.strip("/").split("/")
            for count in range(1, len(parts) + 1):
                head = "/".join(parts[:count])
                if (target := self.link(head)) is not None:
                    base = "" if target.startswith("/") else "/".join(parts[: count - 1])
                    path = os.path.normpath("/" + "/".join([base, target, *parts[count:]]))
                    break
            else:
                return "/".join(parts)
        return path.strip("/")

    def place(self, path: str) -> str | None:
        """Where on this machine something is."""
        for source, target in self.binds:
            inside = target.strip("/")
            if path == inside or path.startswith(f"{inside}/"):
                place = f"{source}{path[len(inside) :]}"
                return place if os.path.lexists(place) else None
        parts = path.split("/")
        for layer in self.layers:
            found = _look(str(layer), parts)
            if found is not None:
                return found or None
        return None


def _look(layer: str, parts: Sequence[str]) -> str | None:
    """A path in one layer; empty when the layer removed or hides it, None when it says nothing of it."""
    place = layer
    hidden = False
    for number, part in enumerate(parts):
        place = f"{place}/{part}"
        try:
            found = os.lstat(place)
        except OSError:
            return "" if hidden else None
        if stat.S_ISCHR(found.st_mode) and found.st_rdev == 0:
            return ""
        last = number == len(parts) - 1
        if not last and not stat.S_ISDIR(found.st_mode):
            return ""
        hidden = hidden or (not last and _opaque(place))
    return place


def _opaque(place: str) -> bool:
    for name in _OPAQUE:
        with suppress(OSError):
            if os.getxattr(place, name, follow_symlinks=False) == b"y":
                return True
    return False


def lower_of(sandbox: Sandbox) -> Lower | None:
    """What a sandbox's root had before anything ran in it; None when it cannot be seen from here."""
    known = getattr(sandbox, "lower", None)
    found: Lower | None = known() if known else None
    return found
