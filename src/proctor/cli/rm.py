"""`proctor rm`: remove runs: rows, artifacts that no other run uses, and the folder if it is theirs."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from proctor.errors import Exit, UsageError

if TYPE_CHECKING:
    from proctor.model.run import RunInfo
    from proctor.settings import Settings
    from proctor.store.blobs import Blobs
    from proctor.store.store import Store

_DAY_S = 86_400.0


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
            _remove(store, blobs, settings, run, keep_folder=keep_folder)
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


def _remove(store: Store, blobs: Blobs, settings: Settings, run: RunInfo, *, keep_folder: bool) -> None:
    from proctor.runs.actions import GRACE_S, delete

    had_folder = bool(run.folder) and Path(run.folder).is_dir()
    done = delete(store, blobs, settings, run.id, keep_folder=keep_folder)
    said = f"removed {run.id} ({run.name}): {run.total} trials, {done.blobs} artifacts"
    if done.left_blobs:
        said += (
            f" ({done.left_blobs} of the last {GRACE_S / 60:.0f} minutes stay: another run may be about to "
            "use them; a later 'proctor rm' or 'proctor db gc' removes them)"
        )
    if done.kept_folder:
        said += f", kept {run.folder}: {done.kept_folder}"
    elif had_folder and not keep_folder:
        said += f", folder {run.folder}"
    print(said)
