"""`proctor import`: a run folder or a Harbor job into the store, checked before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from proctor.runfolder.transfer import Imported
    from proctor.settings import Settings
    from proctor.store.store import Store


@click.command(name="import")
@click.argument("paths", metavar="FOLDER...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print what was read as JSON.")
def command(paths: tuple[Path, ...], as_json: bool) -> None:
    """Read run folders into the store. A folder whose run is there already, unchanged, is no error.

    A job folder of Harbor is made a run, with a folder of its own beside the other rollouts.
    """
    from proctor.cli.table import print_json
    from proctor.settings import load_settings
    from proctor.store.open import open_store

    settings = load_settings()
    done = []
    with open_store(settings.store_url) as store:
        for path in paths:
            result = _import(store, settings, path)
            done.append({"run_id": result.info.id, "name": result.info.name, "added": result.added})
            if not as_json:
                what = "added" if result.added else "was already in the store"
                print(f"{result.info.id}  {result.info.name}  {what}")
    if as_json:
        print_json(done)


def _import(store: Store, settings: Settings, path: Path) -> Imported:
    from proctor.runfolder.harbor.read import is_job, read_job
    from proctor.runfolder.transfer import import_data, import_folder
    from proctor.store.blobs import blobs_of

    blobs = blobs_of(settings)
    if not is_job(path):
        return import_folder(store, blobs, path)
    from proctor.render.reporters import write_reports

    return import_data(store, blobs, read_job(path, blobs), settings.rollouts_dir, write_reports, path)
