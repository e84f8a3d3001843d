"""`proctor import`: a run folder into the store, checked before anything is written."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(name="import")
@click.argument("paths", metavar="FOLDER...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print what was read as JSON.")
def command(paths: tuple[Path, ...], as_json: bool) -> None:
    """Read run folders into the store. A folder whose run is there already, unchanged, is no error."""
    from proctor.cli.table import print_json
    from proctor.runfolder.transfer import import_folder
    from proctor.settings import load_settings
    from proctor.store.blobs import open_blobs
    from proctor.store.open import open_store

    settings = load_settings()
    done = []
    with open_store(settings.store_url) as store:
        for path in paths:
            result = import_folder(store, open_blobs(settings.blobs_url), path)
            done.append({"run_id": result.info.id, "name": result.info.name, "added": result.added})
            if not as_json:
                what = "added" if result.added else "was already in the store"
                print(f"{result.info.id}  {result.info.name}  {what}")
    if as_json:
        print_json(done)
