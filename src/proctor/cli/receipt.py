"""`proctor receipt`: a run in one file, with the digest of every part, for others to verify."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proctor.errors import Exit, NotFoundError, UsageError

if TYPE_CHECKING:
    from proctor.receipt.keys import Signer
    from proctor.store.blobs import Blobs
    from proctor.store.store import Store


@click.command("receipt")
@click.argument("ref", metavar="RUN", required=False)
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option(
    "--no-artifacts",
    is_flag=True,
    help="Leave out logs, profiles and other artifacts; their digests are included.",
)
@click.option(
    "--sign",
    metavar="[KEY]",
    is_flag=False,
    flag_value="",
    help="Sign it with a private key: a name in 'proctor keys ls' or a file. Write --sign after RUN and "
    "PATH. [your only key, or 'default']",
)
@click.option(
    "--valid-days",
    type=click.IntRange(1, 36_500),
    help="With --sign: days until the signature expires. [never]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    ref: str | None,
    path: Path | None,
    no_artifacts: bool,
    sign: str | None,
    valid_days: int | None,
    as_json: bool,
) -> int:
    """Pack RUN into the new file PATH (default: <name>-<id>.receipt.zip here) and print its root digest.

    RUN is an id, the beginning of one, a name, 'latest' or a run folder. 'proctor verify' checks the file
    anywhere, without this store.
    """
    from proctor.cli.table import print_json, printable
    from proctor.receipt.pack import pack_run, receipt_name

    ref = _run_of(ref, sign, valid_days)
    signer = _signer(sign)
    with _open(ref) as (store, blobs, run_id):
        info = store.run(run_id)
        target = path or Path(receipt_name(info))
        how = _signing(signer, valid_days) if signer else None
        packed = pack_run(store, blobs, run_id, target, artifacts=not no_artifacts, sign=how)
    if as_json:
        print_json(
            {
                "run_id": info.id,
                "path": str(packed.path),
                "root": packed.root,
                "files": packed.files,
                "left_out": packed.left_out,
                "size_bytes": packed.size_bytes,
                "signed_by": signer.public if signer else None,
            }
        )
        return Exit.OK
    left_out = f", {packed.left_out} of them as digests only" if packed.left_out else ""
    print(f"{printable(packed.path)}  {packed.files} files{left_out}, {packed.size_bytes / 1024:,.0f} KiB")
    print(f"root  {packed.root}")
    if signer:
        until = f", valid for {valid_days} days" if valid_days else ""
        print(f"signed by {signer.public}{until}")
    return Exit.OK


def _run_of(ref: str | None, sign: str | None, valid_days: int | None) -> str:
    if ref is None:
        taken = f"; --sign took {sign[:80]!r} as the key: write --sign last" if sign else ""
        raise UsageError(f"receipt: RUN is missing{taken}; for example: proctor receipt latest --sign")
    if valid_days is not None and sign is None:
        raise UsageError("--valid-days is about a signature: add --sign")
    return ref


def _signer(sign: str | None) -> Signer | None:
    if sign is None:
        return None
    from proctor.receipt.keys import load_signer
    from proctor.settings import load_settings

    return load_signer(sign, load_settings().keys_dir.expanduser())


def _signing(signer: Signer, valid_days: int | None) -> Callable[[str], Mapping[str, Any]]:
    import time

    from proctor.receipt.signature import signing

    return signing(signer, time.time(), valid_days)


@contextmanager
def _open(ref: str) -> Iterator[tuple[Store, Blobs, str]]:
    """The store that has the run; for a run folder that no store knows, a store for the moment."""
    import tempfile

    from proctor.runfolder.transfer import import_folder
    from proctor.settings import load_settings
    from proctor.store.blobs import blobs_of, open_blobs
    from proctor.store.open import open_store

    settings = load_settings()
    with open_store(settings.store_url, create=False) as store:
        try:
            run_id = store.run(ref).id
        except NotFoundError:
            if not (Path(ref) / "manifest.json").is_file():
                raise
        else:
            yield store, blobs_of(settings), run_id
            return
    with tempfile.TemporaryDirectory(prefix="proctor-receipt-") as scratch:
        blobs = open_blobs(Path(scratch, "blobs"))
        with open_store(str(Path(scratch, "run.db"))) as store:
            yield store, blobs, import_folder(store, blobs, Path(ref)).info.id
