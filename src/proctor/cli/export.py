"""`proctor export`: a run out of the store, as a folder that needs no Proctor to be read."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(name="export")
@click.argument("ref", metavar="RUN")
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print where it went as JSON.")
def command(ref: str, path: Path | None, as_json: bool) -> None:
    """Write RUN to a new folder PATH (default: <name>-<id> here) with its artifacts and reports."""
    from proctor.cli.table import print_json
    from proctor.model.place import safe_name
    from proctor.report.transfer import export_run
    from proctor.settings import load_settings
    from proctor.store.blobs import FolderBlobs
    from proctor.store.open import open_store

    settings = load_settings()
    with open_store(settings.store_url) as store:
        info = store.run(ref)
        target = path or Path(f"{safe_name(info.name)}-{safe_name(info.id)}")
        export_run(store, FolderBlobs(settings.blobs_dir), info.id, target)
    if as_json:
        print_json({"run_id": info.id, "path": str(target)})
    else:
        print(target)
