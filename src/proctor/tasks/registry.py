"""Registry files in Harbor's format: which datasets there are, and where the tasks of each one are.

A file is a JSON list of datasets with name, version, description and tasks; a task has name, git_url,
git_commit_id and path. Files are read from disk or over HTTP; of the latter a copy is kept.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from proctor.disk import read_small
from proctor.errors import FetchError, NotFoundError, ProctorError, UsageError
from proctor.outbound import Reach, opener_from
from proctor.spec.node import nearest
from proctor.tasks.address import COMMIT, GitUrl, git_url, inner_path, redacted
from proctor.tasks.digest import keep
from proctor.tasks.git import Notify

NAME = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.+-]*(?:/[A-Za-z0-9][\w.+-]*)?)(?:@(?P<version>[\w.+-]+))?", re.ASCII
)
"""`name`, `org/name` or either with `@version`."""
MOVING = "head"
"""The version that Harbor prefers, and whose tasks may change."""
_TIMEOUT_S = 30.0
_REACH = Reach(opened_by="naming its address in the setting dataset_registries")
_MOST_BYTES = 64 << 20
_KEY = re.compile(r"[A-Za-z0-9][\w.+@=, -]{0,199}", re.ASCII)


@dataclass(frozen=True, slots=True)
class RegistryTask:
    """One task of a dataset: a folder of a repository at a commit."""

    name: str
    repository: GitUrl
    commit: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryDataset:
    """One version of a dataset, as a registry file lists it; its tasks are read when they are needed."""

    name: str
    version: str
    description: str
    rows: Sequence[Any]
    registry: str

    @property
    def reference(self) -> str:
        """How a person names it."""
        return f"{self.name}@{self.version}"


def read_registry(
    source: str, cache_dir: Path, notify: Notify, *, fresh: bool = True
) -> list[RegistryDataset]:
    """The datasets of one registry file. Without `fresh`, the copy of an HTTP file is good enough."""
    shown = redacted(source)
    if not source.startswith(("http://", "https://")):
        return _parse(_read(Path(source).expanduser(), shown), shown)
    copy = cache_dir / "datasets" / "registries" / hashlib.sha256(shown.encode()).hexdigest()[:32]
    if not fresh and copy.is_file():
        return _parse(copy.read_bytes(), shown)
    try:
        content = _download(source, shown)
        found = _parse(content, shown)
    except FetchError as error:
        if not copy.is_file():
            raise
        notify(f"note: {error}; the copy of an earlier day is used")
        return _parse(copy.read_bytes(), shown)
    keep(copy, content)
    return found


def find_dataset(
    reference: str, registries: Sequence[str], cache_dir: Path, notify: Notify, *, fresh: bool = False
) -> RegistryDataset:
    """The dataset of that name in the first registry that has it.

    A version that does not move needs no network when a copy of its registry is here.
    """
    match = NAME.fullmatch(reference)
    if not match or ".." in reference:
        raise UsageError(f"'{reference[:200]}' is neither a path that exists nor the name of a dataset")
    name, version = match["name"], match["version"]
    if not registries:
        raise NotFoundError(
            f"no dataset named '{reference}': no registry file is known; name one in the setting "
            "dataset_registries (PROCTOR_DATASET_REGISTRIES)"
        )
    if version and version != MOVING and not fresh:
        found, _, _ = _look(name, version, registries, cache_dir, notify, fresh=False)
        if found:
            return found
    found, known, failed = _look(name, version, registries, cache_dir, notify, fresh=True)
    if found:
        return found
    if failed:
        raise failed
    versions = sorted(each.version for each in known if each.name == name)
    if versions:
        raise NotFoundError(f"dataset '{name}' has no version '{version}'; known: {', '.join(versions)}")
    names = {each.name for each in known}
    raise NotFoundError(
        f"no dataset named '{name}' in {', '.join(map(redacted, registries))}{nearest(name, names)}"
    )


def newest(versions: Sequence[str]) -> str:
    """The version that Harbor takes when none is named: `head`, else the highest, else the last by name."""
    from packaging.version import InvalidVersion, Version

    if MOVING in versions:
        return MOVING
    ordered = []
    for each in versions:
        try:
            ordered.append((Version(each), each))
        except InvalidVersion:
            continue
    return max(ordered)[1] if ordered else max(versions)


def tasks_of(dataset: RegistryDataset) -> tuple[RegistryTask, ...]:
    """The tasks, each one checked; the first thing wrong is an error that names the task."""
    found: dict[tuple[str, str, str], RegistryTask] = {}
    for row in dataset.rows:
        task = _task(row, dataset)
        found.setdefault((task.repository.url, task.commit, task.path), task)
    if not found:
        raise UsageError(f"{dataset.registry}: the dataset {dataset.reference} has no tasks")
    return tuple(found.values())


def _look(
    name: str,
    version: str | None,
    registries: Sequence[str],
    cache_dir: Path,
    notify: Notify,
    *,
    fresh: bool,
) -> tuple[RegistryDataset | None, list[RegistryDataset], ProctorError | None]:
    """The dataset, all that were seen, and the first registry that could not be read."""
    known: list[RegistryDataset] = []
    failed: ProctorError | None = None
    for source in registries:
        try:
            datasets = read_registry(source, cache_dir, notify, fresh=fresh)
        except FetchError as error:
            failed = failed or error
            continue
        known += datasets
        same = {each.version: each for each in datasets if each.name == name}
        chosen = version or (newest(list(same)) if same else "")
        if chosen in same:
            return same[chosen], known, None
    return None, known, failed


def _task(row: Any, dataset: RegistryDataset) -> RegistryTask:
    if not isinstance(row, Mapping) or not isinstance(row.get("path"), str):
        raise UsageError(f"{dataset.registry}: a task of {dataset.reference} has no path")
    name = str(row.get("name") or row["path"])[:200]
    shown = f"{dataset.registry}: {dataset.reference}: task '{name}'"
    if not isinstance(row.get("git_url"), str):
        raise UsageError(f"{shown} has no git_url; tasks that are on this machine are given with -t")
    commit = str(row.get("git_commit_id") or "").lower()
    try:
        repository = git_url(row["git_url"].removeprefix("git+"))
    except UsageError as error:
        raise UsageError(f"{shown}: {error}") from None
    if repository.scheme == "file" and dataset.registry.startswith("http"):
        raise UsageError(f"{shown}: a registry of another machine cannot name files of this one")
    if not COMMIT.fullmatch(commit):
        wrong = f"'{row['git_commit_id']}' is not a commit" if commit else "the commit is missing"
        raise UsageError(
            f"{shown}: {wrong}; a branch can change, and a dataset must not. "
            f"Use -d 'git+{repository.url}@{row.get('git_commit_id') or 'HEAD'}#{row['path']}'"
        )
    path = inner_path(row["path"], shown)
    return RegistryTask(_place(path, name), repository, commit, path)


def _place(path: str, name: str) -> str:
    """The folder of a task: the last part of its path, as Harbor has it."""
    last = (path or name).rpartition("/")[2]
    if not _KEY.fullmatch(last) or ".." in last:
        raise UsageError(f"'{last[:100]!r}' cannot be the name of a task")
    return last


def _read(path: Path, shown: str) -> bytes:
    try:
        return read_small(path, _MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{shown}: the registry file cannot be read: {error.strerror}") from error


def _download(source: str, shown: str) -> bytes:
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request

    parts = urlsplit(source)
    request = Request(redacted(source), headers={"User-Agent": "proctor"})  # noqa: S310 - http or https
    if parts.username or parts.password:
        secret = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        # Not passed on when the server sends us to another one.
        request.add_unredirected_header(
            "Authorization", f"Basic {base64.b64encode(secret.encode()).decode()}"
        )
    try:
        with opener_from(redacted(source), _REACH).open(request, timeout=_TIMEOUT_S) as answer:
            content: bytes = answer.read(_MOST_BYTES + 1)
            expected = answer.headers.get("Content-Length")
    except HTTPError as error:
        error.close()
        raise FetchError(f"{shown}: the registry file cannot be fetched: HTTP {error.code}") from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise FetchError(f"{shown}: the registry file cannot be fetched: {reason}") from None
    if expected and expected.isdigit() and len(content) < min(int(expected), _MOST_BYTES):
        raise FetchError(f"{shown}: the registry file did not arrive whole")
    return content


def _parse(content: bytes, shown: str) -> list[RegistryDataset]:
    if len(content) > _MOST_BYTES:
        raise UsageError(f"{shown}: larger than {_MOST_BYTES >> 20} MiB; this is not a registry file")
    try:
        rows = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{shown}: not a registry file: not valid JSON ({error})") from None
    if not isinstance(rows, list):
        raise UsageError(f"{shown}: not a registry file: expected a JSON list of datasets")
    found = []
    for at, row in enumerate(rows):
        if not isinstance(row, Mapping) or not isinstance(row.get("tasks"), list):
            raise UsageError(f"{shown}: entry {at + 1} is not a dataset with name, version and tasks")
        reference = f"{row.get('name')}@{row.get('version')}"
        if not NAME.fullmatch(reference) or ".." in reference:
            raise UsageError(f"{shown}: entry {at + 1}: '{reference[:100]!r}' cannot name a dataset")
        found.append(
            RegistryDataset(
                name=str(row["name"]),
                version=str(row["version"]),
                description=str(row.get("description") or ""),
                rows=row["tasks"],
                registry=shown,
            )
        )
    return found
