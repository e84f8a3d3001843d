"""From the name of a dataset to a folder with its tasks: found in the cache, or fetched once.

`<cache>/datasets/<key>/` holds `dataset.json` and `files/`, complete or absent, checked whenever it is used.
It is made beside and renamed under a lock: a killed fetch leaves nothing, and two processes fetch once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from proctor.errors import StoreError, TaskError
from proctor.model.spec import TaskEntry
from proctor.tasks.address import PREFIX, GitAddress, git_address
from proctor.tasks.git import Notify, Progress, resolve_ref
from proctor.tasks.git_tree import Part, Wanted, digest_of, fetch_folder, fetch_tasks
from proctor.tasks.registry import RegistryDataset, RegistryTask, find_dataset, tasks_of

ABOUT = "dataset.json"
_FORMAT = 1
_STAGING = ".fetching-"
_GIT_ENDS_S = 5.0


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What is known about a dataset in the cache."""

    key: str
    reference: str
    """`name@version` or `git+…@COMMIT#path`."""
    source: str
    """The registry it was found in, or the repository."""
    root: str
    """The folder below `files` that holds the tasks."""
    tasks: int
    parts: tuple[Part, ...]
    bytes: int = 0
    fetched_at: float = 0.0


class DatasetCache:
    """The datasets below one cache folder."""

    def __init__(self, cache_dir: Path) -> None:
        self.folder = cache_dir / "datasets"

    def path(self, fetched: Fetched) -> Path:
        """Where the tasks of a dataset are."""
        return self.folder / fetched.key / "files" / fetched.root

    def get(self, key: str) -> Fetched | None:
        """A dataset that is here, checked or not."""
        try:
            return _read(self.folder / key / ABOUT)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def all(self) -> Iterator[Fetched]:
        """Every dataset that is here."""
        places = sorted(self.folder.glob(f"*/{ABOUT}")) if self.folder.is_dir() else []
        for place in places:
            found = self.get(place.parent.name)
            if found and not place.parent.name.startswith("."):
                yield found

    def obtain(
        self, key: str, fill: Callable[[Path], Fetched], notify: Notify, *, again: bool = False
    ) -> Fetched:
        """The dataset, filled by `fill` if it is not here. With `again`, a damaged one is replaced."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._locked(key, notify):
                found = self.get(key)
                if found:
                    try:
                        self.verify(found)
                    except TaskError as error:
                        if not again:
                            raise
                        notify(f"{error.args[0].partition(';')[0]}; it is fetched again")
                    else:
                        return found
                return self._filled(key, fill)
        except OSError as error:
            raise StoreError(f"{self.folder}: a dataset cannot be kept here: {error.strerror}") from error

    def verify(self, fetched: Fetched) -> None:
        """Compare every file with what was fetched."""
        root = self.path(fetched)
        changed = next((each for each in fetched.parts if not _unchanged(root, each)), None)
        extra = "" if changed else _extra(root, fetched.parts)
        if changed or extra:
            what = f"'{(changed.place if changed else extra) or fetched.root}'"
            raise TaskError(
                f"{fetched.reference}: {what} in the cache is not what was fetched; "
                f"fetch it again with: proctor datasets pull {fetched.reference}"
            )

    def remove(self, key: str, notify: Notify) -> None:
        """Remove a dataset."""
        with self._locked(key, notify):
            _discard(self.folder / key)

    def _filled(self, key: str, fill: Callable[[Path], Fetched]) -> Fetched:
        for left in self.folder.glob(f"{_STAGING}{key}-*"):
            _remove_leftover(left)
        staging = Path(tempfile.mkdtemp(prefix=f"{_STAGING}{key}-", dir=self.folder))
        try:
            (staging / "files").mkdir()
            made = fill(staging)
            made = replace(made, bytes=_size(staging / "files"))
            (staging / ABOUT).write_text(json.dumps({"format": _FORMAT, **asdict(made)}, indent=1))
            staging.chmod(0o755)
            _discard(self.folder / key)
            staging.rename(self.folder / key)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        return made

    @contextlib.contextmanager
    def _locked(self, key: str, notify: Notify) -> Iterator[None]:
        locks = self.folder / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        fd = os.open(locks / key, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                notify("waiting for another process that fetches the same dataset")
                fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


def _read(file: Path) -> Fetched:
    data: dict[str, Any] = json.loads(file.read_text())
    if data.pop("format") != _FORMAT:
        raise ValueError
    parts = tuple(Part(**each) for each in data.pop("parts"))
    return Fetched(**data, parts=parts)


def _unchanged(root: Path, part: Part) -> bool:
    try:
        return digest_of(root / part.place, part) == part.digest
    except (OSError, TaskError):
        return False


def _extra(root: Path, parts: tuple[Part, ...]) -> str:
    """A file that belongs to no part; empty when there is none."""
    known = {str(root / each.place) for each in parts}
    for folder, below, names in os.walk(root):
        if folder in known:
            below.clear()
            continue
        below[:] = [each for each in below if os.path.join(folder, each) not in known]  # noqa: PTH118
        for name in names:
            if os.path.join(folder, name) not in known:  # noqa: PTH118
                return name
    return ""


def _remove_leftover(folder: Path) -> None:
    """Remove what a killed process left. Its git may still write there until it notices."""
    deadline = time.monotonic() + _GIT_ENDS_S
    shutil.rmtree(folder, ignore_errors=True)
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
        shutil.rmtree(folder, ignore_errors=True)


def _discard(folder: Path) -> None:
    """Out of sight in one step, then gone."""
    if folder.exists():
        aside = Path(tempfile.mkdtemp(prefix=".old-", dir=folder.parent))
        folder.rename(aside / "dataset")
        shutil.rmtree(aside, ignore_errors=True)


def _size(folder: Path) -> int:
    return sum(each.lstat().st_size for each in folder.rglob("*") if not each.is_dir())
