"""Copy a store to a file and back, while others work on it; and the blobs that its runs refer to."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote

from proctor.errors import NotFoundError, StoreError, UsageError
from proctor.store.blobs import Blobs, DamagedBlobError, FolderBlobs
from proctor.store.database import VERSION_TABLE, refuse_unknown
from proctor.store.open import open_store
from proctor.store.sqlite import APPLICATION_ID
from proctor.store.store import Store

_SQLITE, _POSTGRES = b"SQLite format 3\0", b"PGDMP"
_KINDS = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


def backup(url: str, target: Path) -> None:
    """Write a consistent copy of the store to a file, which appears whole or not at all."""
    if kind_of(url) == "sqlite" and not Path(_file(url)).is_file():
        raise UsageError(f"{_file(url)}: there is no store yet, so there is nothing to copy")
    with _arriving(target) as beside:
        if kind_of(url) == "postgres":
            from proctor.store.postgres_backup import dump

            dump(url, beside)
        else:
            _copy_sqlite(_file(url), str(beside))


def restore(url: str, source: Path, *, replace: bool = False) -> None:
    """Make the store what a copy says. Everything is checked first; runs are replaced only when told."""
    copied = _kind_of_copy(source)
    if copied != kind_of(url):
        raise UsageError(
            f"{source} is a copy of a {_KINDS[copied]} store, and the store is on {_KINDS[kind_of(url)]}; "
            "name a store of that kind with PROCTOR_STORE. 'proctor export' and 'proctor import' move runs "
            "between the two"
        )
    revision = _revision_of_copy(source, copied)
    refuse_unknown(revision, str(source))
    with open_store(url) as store:
        if not replace and store.runs(limit=1):
            raise UsageError(
                f"{store.where} has runs already, and they would be lost; add --replace to replace them"
            )
    if copied == "postgres":
        from proctor.store.postgres_backup import load

        load(url, source)
    else:
        _copy_sqlite(str(source), _file(url))
    open_store(url).close()  # upgrades an older copy


def copy_blobs(source: Blobs, target: Blobs, store: Store, also: Collection[str] = ()) -> tuple[int, int]:
    """Copy every blob that runs refer to and that is not there yet; how many, and how many were there.

    `also` those that runs referred to earlier, as far as they still exist.
    """
    copied = kept = 0
    for digest in sorted(store.live_blobs().union(also)):
        if target.has(digest, keep=True):
            kept += 1
            continue
        try:
            with source.open(digest) as file:
                made = _put(target, file)
        except NotFoundError:
            if digest in store.live_blobs():
                raise
            continue
        if made != digest:
            target.remove(made)
            raise DamagedBlobError(
                f"blob {digest} of {source.where} is damaged: see 'proctor db check --deep'"
            )
        copied += 1
    return copied, kept


def kind_of(url: str) -> str:
    """`sqlite` or `postgres`."""
    scheme, separator, _ = url.partition("://")
    if separator and scheme in {"postgresql", "postgres", "postgresql+psycopg"}:
        return "postgres"
    if separator and scheme != "sqlite":
        raise UsageError(f"'{scheme}://' is not a store on this machine; see the setting 'store'")
    return "sqlite"


def _put(target: Blobs, file: BinaryIO) -> str:
    with tempfile.NamedTemporaryFile(prefix="proctor-blob-") as copy:
        shutil.copyfileobj(file, copy, 1 << 20)
        copy.flush()
        return target.put_file(Path(copy.name), "blob").digest


def folder_of_copies(folder: Path, *, must_exist: bool = False) -> FolderBlobs:
    """The blobs beside a copy of a store."""
    if must_exist and not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder of blobs")
    return FolderBlobs(folder, sync=True)


def _file(url: str) -> str:
    _, separator, rest = url.partition("://")
    return unquote(rest.removeprefix("/")) if separator else url


@contextmanager
def _arriving(target: Path) -> Iterator[Path]:
    beside = target.with_name(f".{target.name}.partial-{os.urandom(4).hex()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside.touch(mode=0o600)
        yield beside
        beside.replace(target)
    except OSError as error:
        raise UsageError(f"{target}: the copy cannot be written: {error.strerror or error}") from error
    finally:
        beside.unlink(missing_ok=True)


def _copy_sqlite(source: str, target: str) -> None:
    """SQLite's own online copy: a state between two transactions, and whole for who reads the target."""
    try:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        with (
            closing(sqlite3.connect(f"file:{quote(str(Path(source).absolute()))}?mode=ro", uri=True)) as one,
            closing(sqlite3.connect(target, timeout=30)) as other,
        ):
            one.backup(other)
    except sqlite3.Error as error:
        raise StoreError(f"{source} cannot be copied to {target}: {error}") from error


def _kind_of_copy(source: Path) -> str:
    try:
        with source.open("rb") as file:
            head = file.read(16)
    except OSError as error:
        raise UsageError(f"{source}: cannot be read: {error.strerror or error}") from error
    if head.startswith(_SQLITE):
        return "sqlite"
    if head.startswith(_POSTGRES):
        return "postgres"
    raise UsageError(f"{source}: not a copy that 'proctor db backup' made")


def _revision_of_copy(source: Path, kind: str) -> str:
    if kind == "postgres":
        from proctor.store.postgres_backup import revision_of_dump

        return revision_of_dump(source)
    try:
        with closing(sqlite3.connect(f"file:{quote(str(source.absolute()))}?mode=ro", uri=True)) as copy:
            if copy.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID:
                return str(copy.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()[0])
    except (sqlite3.Error, TypeError) as error:
        raise UsageError(f"{source}: the copy is damaged: {error}") from error
    raise UsageError(f"{source}: this is a SQLite database of another program")
