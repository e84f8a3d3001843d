"""`proctor db`: look after the store: upgrade, copy, restore and check it, clear what nothing needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from proctor.errors import Exit

if TYPE_CHECKING:
    from proctor.settings import Settings
    from proctor.store.blobs import Blobs

_HOUR_S = 3600.0
_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.group("db")
def command() -> None:
    """Look after the store of this machine or team. Workers may go on meanwhile."""


@command.command("upgrade")
def upgrade() -> int:
    """Bring the store to the schema of this version of Proctor.

    Any command does so when it opens the store; this one does nothing else. Processes of an older version
    stop writing within seconds and say that they must be upgraded.
    """
    from proctor.settings import load_settings
    from proctor.store.database import HEAD
    from proctor.store.open import open_store

    with open_store(load_settings().store_url) as store:
        print(f"{store.where}: schema {HEAD}, the newest that this version knows")
    return Exit.OK


@command.command("worker-role")
@click.argument("name")
def worker_role(name: str) -> int:
    """Give workers a role of their own in PostgreSQL: NAME, which is made if it is not there.

    It executes trials and cannot read accounts, tokens, provider keys or the audit. The store's address must
    be that of the owner of the tables. WORKER_PASSWORD of the environment becomes its password; without that
    the role keeps the one it has. Do this again after every upgrade of the schema.
    """
    import os

    from proctor.errors import UsageError
    from proctor.settings import load_settings
    from proctor.store.database import HEAD
    from proctor.store.open import open_store
    from proctor.store.worker_role import set_up

    url = load_settings().store_url
    if not url.startswith("postgres"):
        raise UsageError(f"roles are for PostgreSQL, and the store is {url}: on SQLite there is one account")
    with open_store(url) as store:
        where = store.where
    database = set_up(url, name, os.environ.get("WORKER_PASSWORD"))
    print(f"{where}: {name} may execute trials of {database} (schema {HEAD})")
    return Exit.OK


@command.command("backup")
@click.argument("file", type=_FILE)
@click.option("--blobs", "folder", type=_FOLDER, help="Also copy the files of runs to this folder.")
def backup_store(file: Path, folder: Path | None) -> int:
    """Write a consistent copy of the store to FILE.

    SQLite: a SQLite file. PostgreSQL: a dump in the custom format, made by pg_dump. Files that the folder
    of --blobs has already are not copied again.
    """
    from proctor.cli.show import size_text
    from proctor.settings import load_settings
    from proctor.store.backup import backup, copy_blobs, folder_of_copies
    from proctor.store.blobs import blobs_of
    from proctor.store.open import open_store

    settings = load_settings()
    with open_store(settings.store_url, create=False) as store:
        before = store.live_blobs()
        backup(settings.store_url, file)
        print(f"{file}: {size_text(file.stat().st_size)}")
        if folder:
            copied, kept = copy_blobs(blobs_of(settings), folder_of_copies(folder), store, before)
            print(f"{folder}: {copied} files copied, {kept} were there")
    return Exit.OK


@command.command("restore")
@click.argument("file", type=_FILE)
@click.option("--blobs", "folder", type=_FOLDER, help="Also put back the files of runs from this folder.")
@click.option("--replace", is_flag=True, help="Replace a store that has runs; they are lost.")
def restore_store(file: Path, folder: Path | None, replace: bool) -> int:
    """Make the store what FILE says, which `proctor db backup` wrote.

    Nothing is changed when FILE is damaged, of a newer version, or of another kind of store, or when the
    store has runs and --replace is not given.
    """
    from proctor.settings import load_settings
    from proctor.store.backup import copy_blobs, folder_of_copies, restore
    from proctor.store.blobs import blobs_of
    from proctor.store.open import open_store

    settings = load_settings()
    source = folder_of_copies(folder, must_exist=True) if folder else None
    restore(settings.store_url, file, replace=replace)
    with open_store(settings.store_url) as store:
        print(f"{store.where}: restored")
        if source:
            copied, kept = copy_blobs(source, blobs_of(settings), store)
            print(f"{copied} files put back, {kept} were there")
    return Exit.OK


@command.command("check")
@click.option("--deep", is_flag=True, help="Read every file of runs and compare it with its digest.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(deep: bool, as_json: bool) -> int:
    """Check the rows of the store, and that every file that runs refer to is there.

    Exit code 5 when something is wrong.
    """
    from dataclasses import asdict

    from proctor.cli.table import print_json, printable
    from proctor.settings import load_settings
    from proctor.store.blobs import open_blobs
    from proctor.store.open import open_store
    from proctor.store.soundness import examine

    settings = load_settings()
    with open_store(settings.store_url, create=False) as store:
        # Without the cache: what is asked is what the place itself has.
        found = examine(store, open_blobs(settings.blobs_url, ca_bundle=settings.ca_bundle), deep=deep)
    if as_json:
        print_json({"sound": found.sound, "deep": deep, **asdict(found)})
        return Exit.OK if found.sound else Exit.STORE
    for problem in found.problems:
        print(printable(problem))
    for what, digests in (("missing", found.missing), ("damaged", found.damaged)):
        for digest in digests:
            print(f"{what}: {digest}")
    read = "all read and right" if deep else "all present"
    print(f"sound: {found.referred} files, {read}" if found.sound else "the store is not sound")
    return Exit.OK if found.sound else Exit.STORE


@command.command("gc")
@click.option("--dry-run", is_flag=True, help="Only say what is there and what would go.")
@click.option(
    "--grace", type=click.FloatRange(1), default=1.0, metavar="HOURS", show_default=True,
    help="Keep files that were put within this time: a run may be about to refer to them.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def collect(dry_run: bool, grace: float, as_json: bool) -> int:
    """Remove files that no run refers to, and uploads to S3 that were left unfinished for a day.

    Safe while others work. `proctor rm` does the first part too.
    """
    from dataclasses import asdict

    from proctor.cli.show import size_text
    from proctor.cli.table import print_json
    from proctor.settings import load_settings
    from proctor.store.blobs import blobs_of
    from proctor.store.garbage import collect_garbage
    from proctor.store.open import open_store

    settings = load_settings()
    blobs = blobs_of(settings)
    with open_store(settings.store_url, create=False) as store:
        done = collect_garbage(store, blobs, grace_s=grace * _HOUR_S, dry_run=dry_run)
    ended, note = _end_uploads(settings, blobs, dry_run=dry_run)
    if as_json:
        print_json({"dry_run": dry_run, **asdict(done), "uploads_ended": ended, "note": note})
        return Exit.OK
    would = "would be " if dry_run else ""
    print(f"{done.removed} files ({size_text(done.removed_bytes)}) {would}removed")
    print(f"{done.kept} files ({size_text(done.kept_bytes)}) {'would stay' if dry_run else 'stay'}")
    if ended:
        print(f"{ended} unfinished uploads {would}ended")
    if note:
        print(note)
    return Exit.OK


def _end_uploads(settings: Settings, blobs: Blobs, *, dry_run: bool) -> tuple[int, str]:
    """How many unfinished uploads were ended, and why none could be."""
    if not blobs.remote:
        return 0, ""
    from proctor.errors import UsageError
    from proctor.store.s3.address import parse
    from proctor.store.s3.uploads import abort, unfinished

    place, count = parse(settings.blobs_url), 0
    try:
        for each in unfinished(place, settings.ca_bundle):
            if each.age_s >= 24 * _HOUR_S:
                count += 1
                if not dry_run:
                    abort(place, each, settings.ca_bundle)
    except UsageError as error:
        return count, str(error)
    return count, ""
