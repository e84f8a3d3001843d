"""From the name of a dataset to a folder with its tasks: found in the cache, or fetched once."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from proctor.model.spec import TaskEntry
from proctor.tasks.address import PREFIX, GitAddress, git_address
from proctor.tasks.dataset_cache import DatasetCache, Fetched, Notify
from proctor.tasks.git import Progress, resolve_ref
from proctor.tasks.git_tree import Part, Wanted, fetch_folder, fetch_tasks
from proctor.tasks.registry import RegistryDataset, RegistryTask, find_dataset, tasks_of


def to_stderr(sentence: str) -> None:
    """Where a person sees what happens, unless told otherwise."""
    sys.stderr.write(f"{sentence}\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Datasets:
    """Where datasets come from and where they are kept."""

    cache_dir: Path
    registries: tuple[str, ...] = ()
    notify: Notify = to_stderr
    progress: Progress | None = None

    def pin(self, reference: str, *, fresh: bool = False) -> Pinned:
        """What a name means at this moment: a version instead of none, a commit instead of a branch."""
        if reference.startswith(PREFIX):
            address = git_address(reference)
            if not address.pinned:
                commit = resolve_ref(address)
                self.notify(f"note: {address.reference} is commit {commit}")
                address = replace(address, ref=commit)
            return Pinned(address.reference, address)
        found = find_dataset(reference, self.registries, self.cache_dir, self.notify, fresh=fresh)
        return Pinned(found.reference, found)

    def folder(self, reference: str) -> Path:
        """The folder of a dataset's tasks, fetched if it is not here."""
        return DatasetCache(self.cache_dir).path(self.fetch(self.pin(reference)))

    def fetch(self, pinned: Pinned, *, again: bool = False) -> Fetched:
        """The dataset, from the cache or from its repositories. With `again`, a damaged copy is replaced."""
        meant = pinned.meant
        fill: Callable[[Path], Sequence[Part]]
        identity: list[Any]
        if isinstance(meant, GitAddress):
            identity = [meant.repository.url, meant.ref, meant.path]
            source, root = meant.repository.url, meant.path.rpartition("/")[2] or meant.repository.name
            fill = partial(self._from_git, meant)
        else:
            tasks = tasks_of(meant)
            identity = [[each.name, each.repository.url, each.commit, each.path] for each in tasks]
            source, root = meant.registry, meant.name.rpartition("/")[2]
            fill = partial(self._from_registry, meant, tasks)
        key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]

        def fetched(staging: Path) -> Fetched:
            target = staging / "files" / root
            target.mkdir()
            parts = tuple(fill(target))
            return Fetched(
                key=key,
                reference=pinned.reference,
                source=source,
                root=root,
                tasks=sum(part.is_folder for part in parts),
                parts=parts,
                fetched_at=time.time(),
            )

        return DatasetCache(self.cache_dir).obtain(key, fetched, self.notify, again=again)

    def _from_git(self, address: GitAddress, target: Path) -> Sequence[Part]:
        self.notify(f"fetching {address.reference}")
        return fetch_folder(address.repository, address.ref, address.path, target, self.progress)

    def _from_registry(
        self, dataset: RegistryDataset, tasks: Sequence[RegistryTask], target: Path
    ) -> Sequence[Part]:
        parts: list[Part] = []
        for (url, commit), group in _by_commit(tasks).items():
            count = f"{len(group)} task{'s' if len(group) > 1 else ''}"
            self.notify(f"fetching {count} of {dataset.reference} from {url} at {commit[:12]}")
            wanted = [Wanted(each.path, place) for each, place in group]
            parts += fetch_tasks(group[0][0].repository, commit, wanted, target, self.progress)
        return parts


@dataclass(frozen=True, slots=True)
class Pinned:
    """A dataset that cannot move any more."""

    reference: str
    """How the run remembers it."""
    meant: GitAddress | RegistryDataset


def locate(entry: TaskEntry, base_dir: Path, datasets: Datasets) -> Path:
    """Where the tasks of an entry are. A path that exists wins over a dataset of the same name."""
    path = existing(entry.path, base_dir)
    if path is None and is_reference(entry):
        return datasets.folder(entry.path)
    return path or Path(entry.path)


def existing(written: str, base_dir: Path) -> Path | None:
    """The path against the spec's folder first, then against the working folder."""
    if written.startswith(PREFIX):
        return None
    return next((each for each in (base_dir / written, Path(written)) if each.exists()), None)


def is_reference(entry: TaskEntry) -> bool:
    """Whether an entry may name a dataset that is elsewhere."""
    return entry.source == "dataset" or entry.path.startswith(PREFIX)


def _by_commit(tasks: Sequence[RegistryTask]) -> dict[tuple[str, str], list[tuple[RegistryTask, str]]]:
    """The tasks of each commit with the folder each one gets; two of one name get a number."""
    groups: dict[tuple[str, str], list[tuple[RegistryTask, str]]] = {}
    taken: set[str] = set()
    for task in tasks:
        place = next(
            each
            for each in (task.name, *(f"{task.name}-{at}" for at in range(2, len(tasks) + 2)))
            if each not in taken
        )
        taken.add(place)
        groups.setdefault((task.repository.url, task.commit), []).append((task, place))
    return groups
