"""`proctor export`: a run as a folder that needs no Proctor, in the formats of other tools, or as tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import click

from proctor.errors import Exit


@click.command(name="export")
@click.argument("ref", metavar="RUN")
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option(
    "--format",
    "format_",
    type=click.Choice(["folder", "harbor", "runresult", "csv", "parquet"]),
    default="folder",
    show_default=True,
    help="The whole run, a job folder for Harbor, a file per parameter point, or tables.",
)
@click.option("--json", "as_json", is_flag=True, help="Print where it went as JSON.")
def command(ref: str, path: Path | None, format_: str, as_json: bool) -> int:
    """Write RUN to a new folder PATH (default: <name>-<id> here) with its artifacts and reports.

    With --format harbor it is a job folder that Harbor's tools read. With --format runresult it has a
    RunResult of each parameter point in the layout of older tools. With --format csv or parquet the folder
    holds tables of trials, attempts and iterations, and RUN may also be a run folder or a receipt.
    """
    from proctor.cli.table import print_json, print_table, printable

    if format_ in {"folder", "harbor", "runresult"}:
        done = _folder(ref, path, format_)
    else:
        done = _tables(ref, path, "csv" if format_ == "csv" else "parquet")
    if as_json:
        print_json(done)
        return Exit.OK
    print(printable(done["path"]))
    if tables := done.get("tables"):
        rows = [[each["name"], f"{each['rows']:,}", each["columns"]] for each in tables]
        print_table(["table", "rows", "columns"], rows, right=(1, 2))
    return Exit.OK


def _folder(ref: str, path: Path | None, format_: str) -> dict[str, Any]:
    from proctor.model.place import safe_name
    from proctor.settings import load_settings
    from proctor.store.blobs import blobs_of
    from proctor.store.open import open_store

    ending = "" if format_ == "folder" else f"-{format_}"
    settings = load_settings()
    blobs = blobs_of(settings)
    with open_store(settings.store_url) as store:
        info = store.run(ref)
        target = path or Path(f"{safe_name(info.name)}-{safe_name(info.id)}{ending}")
        if format_ == "runresult":
            from proctor.runfolder.older_result import write_results
            from proctor.runfolder.read import RunData

            points = write_results(RunData.from_store(store, info.id), blobs, target)
            return {"run_id": info.id, "path": str(target), "points": points}
        if format_ == "harbor":
            from proctor.runfolder.harbor.write import write_job
            from proctor.runfolder.read import RunData

            trials = write_job(RunData.from_store(store, info.id), blobs, target)
            return {"run_id": info.id, "path": str(target), "trials": trials}
        from proctor.render.reporters import write_reports
        from proctor.runfolder.transfer import export_run

        export_run(store, blobs, info.id, target, write_reports)
    return {"run_id": info.id, "path": str(target)}


def _tables(ref: str, path: Path | None, format_: Literal["csv", "parquet"]) -> dict[str, Any]:
    from dataclasses import asdict

    from proctor.model.place import safe_name
    from proctor.settings import load_settings
    from proctor.store.open import StorePool
    from proctor.tables.files import write_tables
    from proctor.tables.source import open_source

    with (
        StorePool(load_settings().store_url, create=False) as stores,
        open_source(ref, stores) as source,
    ):
        info = source.info
        target = path or Path(f"{safe_name(info.name)}-{safe_name(info.id)}-{format_}")
        written = write_tables(source, target, format_)
    return {"run_id": info.id, "path": str(target), "tables": [asdict(each) for each in written]}
