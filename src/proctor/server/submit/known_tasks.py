"""Tasks of uploads and stored tasks that were read before: the same few are submitted all day."""

from __future__ import annotations

from pathlib import Path

from proctor.model.spec import TaskEntry
from proctor.server.reading.kept import Kept
from proctor.tasks.dataset import Found, find_tasks

_MOST = 2_000
"""Tasks that are kept."""


class KnownTasks:
    """What entries of submitted specs mean. Their folders are named by content, so it cannot change."""

    def __init__(self) -> None:
        self._found: Kept[Found] = Kept(_MOST)

    def find(self, entry: TaskEntry, base_dir: Path, cache_dir: Path, registries: tuple[str, ...]) -> Found:
        """The tasks of an entry; only those that could be read are remembered."""
        key = (entry.source, entry.path, entry.include, entry.exclude)
        if known := self._found.get(key):
            return known
        found = find_tasks(entry, base_dir, cache_dir, registries)
        return found if found.broken else self._found.put(key, found, weight=max(1, len(found.tasks)))
