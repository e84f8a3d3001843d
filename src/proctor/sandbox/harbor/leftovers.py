"""Environments of Harbor's that may still be there, one small file each: they run elsewhere and cost money.

A file is written before an environment is made and removed once Harbor has deleted it. What a failed stop or
a killed process left is found by the next start.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from proctor import owner
from proctor.sandbox import reaper

_FOLDER = "harbor-sandboxes"
_SUFFIX = ".environment.json"


class Environments:
    """The files of one back end."""

    def __init__(self, home: Path, number: int) -> None:
        self.state_dir = home.absolute() / _FOLDER
        name = owner.owner_name()
        self._folder = self.state_dir / (f"{name}-{number}" if number else name)
        self._holds = False

    def note(self, name: str, about: Mapping[str, Any]) -> None:
        """Say of an environment that it is about to be made."""
        if not self._holds:
            self.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            owner.hold(reaper.lock_of(self._folder))
            self._holds = True
            self._folder.mkdir(exist_ok=True, mode=0o700)
            reaper.write_owner(self._folder, keeper=None, cgroups=[])
        self._file(name).write_text(json.dumps({"name": name, **about}))

    def forget(self, name: str) -> None:
        """It was deleted."""
        self._file(name).unlink(missing_ok=True)

    def close(self) -> None:
        """Leave what was not deleted to the next start."""
        if self._holds:
            if not any(self._folder.glob(f"*{_SUFFIX}")):
                shutil.rmtree(self._folder, ignore_errors=True)
            owner.release(reaper.lock_of(self._folder), remove=not self._folder.exists())
            self._holds = False

    def left(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """What dead owners left, each held meanwhile; remove the file of what was deleted."""
        for folder, _ in reaper.orphans(self.state_dir):
            with owner.held_if_free(reaper.lock_of(folder)) as free:
                for file in sorted(folder.glob(f"*{_SUFFIX}")) if free else ():
                    try:
                        about = json.loads(file.read_text())
                    except (OSError, ValueError):
                        continue
                    yield file, about
                if free and not any(folder.glob(f"*{_SUFFIX}")):
                    shutil.rmtree(folder, ignore_errors=True)
        reaper.forget_locks(self.state_dir)

    def _file(self, name: str) -> Path:
        return self._folder / f"{name.replace(os.sep, '_')}{_SUFFIX}"
