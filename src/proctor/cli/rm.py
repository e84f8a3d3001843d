"""`proctor rm`: remove runs: rows, artifacts that no other run uses, and the folder if it is theirs."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from proctor.errors import Exit, StoreError, UsageError

if TYPE_CHECKING:
    from proctor.model.run import RunInfo
    from proctor.store.blobs import Blobs
    from proctor.store.store import Store

_DAY_S = 86_400.0
_GRACE_S = 600.0
"""While other runs are active, a blob this young may be about to be referred to."""


@click.command("rm")
@click.argument("refs", metavar="RUN...", nargs=-1)
@click.option(
    "--older-than",
    type=click.FloatRange(0),
    metavar="DAYS",
    help="Also remove every run older than this many days.",
)
@click.option("--keep-folder", is_flag=True, help="Keep the run folders.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def command(refs: tuple[str, ...], older_than: float | None, keep_folder: bool, yes: bool) -> int:
    """Remove every RUN named: ids, beginnings of ids, names, 'latest', run folders."""
    from proctor.settings import load_settings
    from proctor.store.blobs import blobs_of
    from proctor.store.garbage import collect_garbage
    from proctor.store.open import open_store

    if not refs and older_than is None:
        raise UsageError("name the runs to remove, or give --older-than DAYS")
    settings = load_settings()
    with open_store(settings.store_url, create=False) as store:
        chosen = _choose(store, refs, older_than)
        if not chosen:
            print("Nothing to remove.")
            return Exit.OK
        _confirm(chosen, yes=yes)
        blobs = blobs_of(settings)
        for run in chosen:
            _remove(store, blobs, run, keep_folder=keep_folder)
        collect_garbage(store, blobs)
    return Exit.OK


def _choose(store: Store, refs: Sequence[str], older_than: float | None) -> list[RunInfo]:
    """The runs meant, each once. One that is at work is not removed."""
    now = time.time()
    active = _active(store)
    chosen = {run.id: run for run in map(store.run, refs)}
    for run in chosen.values():
        if run.id in active:
            raise UsageError(f"run {run.id} ({run.name}) is still running; stop it first")
    if older_than is not None:
        chosen |= {run.id: run for run in _older(store, now - older_than * _DAY_S) if run.id not in active}
    return list(chosen.values())


def _older(store: Store, moment: float) -> list[RunInfo]:
    found: list[RunInfo] = []
    page = store.runs(limit=200)
    while page:
        found += [run for run in page if run.created_at < moment]
        page = store.runs(limit=200, before=page[-1].id)
    return found


def _active(store: Store) -> set[str]:
    return {run.id for run in store.runs(status="running", limit=10_000)} - store.stalled()


def _confirm(chosen: Sequence[RunInfo], *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{len(chosen)} runs would be removed for good; add --yes to confirm")
    for run in chosen:
        print(f"  {run.id}  {run.name}  {run.done}/{run.total} trials  {run.folder}")
    click.confirm(f"Remove {len(chosen)} {'run' if len(chosen) == 1 else 'runs'} for good?", abort=True)


def _remove(store: Store, blobs: Blobs, run: RunInfo, *, keep_folder: bool) -> None:
    from proctor.store.garbage import remove_orphans

    orphans = store.delete_run(run.id)
    grace_s = _GRACE_S if store.remote or _active(store) else 0.0  # others may be about to refer to it
    removed = remove_orphans(store, blobs, orphans, grace_s=grace_s)
    said = [f"removed {run.id} ({run.name}): {run.total} trials, {removed} artifacts"]
    if run.folder and not keep_folder:
        said.append(_remove_folder(Path(run.folder), run.id))
    print(", ".join(filter(None, said)))


def _remove_folder(folder: Path, run_id: str) -> str:
    """Remove the run's folder if its manifest says it is this run's. What was done about it, in words."""
    import shutil

    from proctor.store.refs import run_id_of_folder

    if not folder.is_dir():
        return ""
    if folder.is_symlink() or run_id_of_folder(folder) != run_id:
        return f"kept {folder}: its manifest does not name this run"
    if folder.resolve() in {*Path.cwd().parents, Path.cwd(), Path.home().resolve()}:
        return f"kept {folder}: it is your current or home folder"
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise StoreError(
            f"{folder}: the run was removed from the store, but its folder was not ({error.strerror}); "
            "remove it manually"
        ) from error
    return f"folder {folder}"
