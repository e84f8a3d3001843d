"""What a side's code read while it was loaded and first called: its modules, and the files it opened.

The worker that probes a side loads this file by its path, before anything of the user's.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_STARTS = frozenset(
    {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen"}
)


class Reads:
    """Files that were opened to be read, and whether a process was started, from now until `close`."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.starts_processes = False
        self._open = True
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._open:
            return
        if event in _STARTS:
            self.starts_processes = True
        elif event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and not flags & (os.O_WRONLY | os.O_RDWR):
                self._add(path)
        elif event == "sqlite3.connect":
            self._add(arguments[0])

    def _add(self, path: object) -> None:
        if isinstance(path, bytes | str):
            name = os.fsdecode(path)
            if not name.endswith(".pyc"):
                self.files.add(os.path.abspath(name))

    def inside(self, folders: Iterable[str]) -> list[str]:
        """Those of the files that are in one of the folders."""
        folders = list(folders)
        return sorted(file for file in self.files if _inside(file, folders))

    def close(self) -> None:
        """Hear nothing more; a hook cannot be removed."""
        self._open = False


def strangers(roots: Iterable[str], foreign: Iterable[str], shared: Iterable[str]) -> list[list[str]]:
    """Modules of the project that did not come from this side's folder: the wrong code would be measured."""
    roots = list(roots)
    found = []
    for name, file in modules():
        top = name.partition(".")[0]
        if _inside(file, roots):
            continue
        elsewhere = _inside(file, foreign) and not _inside(file, [*shared, sys.prefix])
        homes = [f"{root}{below}/{top}" for root in roots for below in ("", "/src")]
        has_own = any(os.path.isfile(f"{home}/__init__.py") for home in homes)
        if (elsewhere and top != "proctor") or has_own:
            found.append([name, file])
    return found


def modules() -> list[tuple[str, str]]:
    """What was imported and is no part of Python: names and files."""
    loaded = [(name, getattr(module, "__file__", None)) for name, module in list(sys.modules.items())]
    return [
        (name, file)
        for name, file in loaded
        if isinstance(file, str)
        and name != "__main__"
        and name.partition(".")[0] not in sys.stdlib_module_names
    ]


def _inside(file: str, folders: Iterable[str]) -> bool:
    return any(file.startswith(folder.rstrip("/") + "/") for folder in folders)
