"""`proctor receipt`: a run in one file, with the digest of every part, for others to verify."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from proctor.errors import Exit, NotFoundError

if TYPE_CHECKING:
    from proctor.store.blobs import FolderBlobs
    from proctor.store.store import Store


@click.command("receipt")
@click.argument("ref", metavar="RUN")
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option(
    "--no-artifacts",
    is_flag=True,
    help="Leave logs, profiles and other artifacts out; their digests are in it all the same.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(ref: str, path: Path | None, no_artifacts: bool, as_json: bool) -> int:
    """Pack RUN into the new file PATH (default: <name>-<id>.receipt.zip here) and print its root digest.

    RUN is an id, the beginning of one, a name, 'latest' or a run folder. 'proctor verify' checks the file
    anywhere, without this store.
    """
    from proctor.cli.table import print_json, printable
    from proctor.report.receipt.pack import pack_run, receipt_name

    with _open(ref) as (store, blobs, run_id):
        info = store.run(run_id)
        target = path or Path(receipt_name(info))
        packed = pack_run(store, blobs, run_id, target, artifacts=not no_artifacts)
    if as_json:
        print_json(
            {
                "run_id": info.id,
                "path": str(packed.path),
                "root": packed.root,
                "files": packed.files,
                "left_out": packed.left_out,
                "size_bytes": packed.size_bytes,
            }
        )
        return Exit.OK
    left_out = f", {packed.left_out} of them as digests only" if packed.left_out else ""
    print(f"{printable(packed.path)}  {packed.files} files{left_out}, {packed.size_bytes / 1024:,.0f} KiB")
    print(f"root  {packed.root}")
    return Exit.OK


@contextmanager
def _open(ref: str) -> Iterator[tuple[Store, FolderBlobs, str]]:
    """The store that has the run; for a run folder that no store knows, a store for the moment."""
    import tempfile

    from proctor.report.transfer import import_folder
    from proctor.settings import load_settings
    from proctor.store.blobs import FolderBlobs
    from proctor.store.open import open_store

    settings = load_settings()
    with open_store(settings.store_url, create=False) as store:
        try:
            run_id = store.run(ref).id
        except NotFoundError:
            if not (Path(ref) / "manifest.json").is_file():
                raise
        else:
            yield store, FolderBlobs(settings.blobs_dir), run_id
            return
    with tempfile.TemporaryDirectory(prefix="proctor-receipt-") as scratch:
        blobs = FolderBlobs(Path(scratch, "blobs"))
        with open_store(str(Path(scratch, "run.db"))) as store:
            yield store, blobs, import_folder(store, blobs, Path(ref)).info.id
