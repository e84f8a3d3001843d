"""`proctor cancel`: end a run for good; what has ended is kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from proctor.errors import Exit

if TYPE_CHECKING:
    from proctor.model.run import RunInfo
    from proctor.settings import Settings
    from proctor.store.store import Store


@click.command(name="cancel")
@click.argument("ref", metavar="RUN")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(ref: str, as_json: bool) -> int:
    """Cancel RUN: an id, the beginning of one, a name, 'latest' or a run folder.

    No further trial starts; trials that are running are stopped within seconds.
    """
    from proctor.cli.table import print_json
    from proctor.model.trial import RunStatus
    from proctor.settings import load_settings
    from proctor.store.open import open_store

    settings = load_settings()
    with open_store(settings.store_url, create=False) as store:
        info = store.run(ref)
        over = info.status in {RunStatus.DONE, RunStatus.CANCELLED}
        running = [] if over else store.workers(info.id)
        ended = 0
        if not over:
            store.set_status(info.id, RunStatus.CANCELLED)
            ended = store.cancel(info.id)
            if not running:
                _close_books(store, info, settings)
    if as_json:
        status = info.status if over else RunStatus.CANCELLED
        print_json({"run": info.id, "status": status.value, "cancelled_trials": ended, "workers": running})
    elif over:
        print(f"run {info.id} is already {info.status.value}; nothing was changed")
    else:
        said = f"cancelled run {info.id} ({info.name}): {ended} trials will not run"
        print(said + ("; running trials are being stopped" if running else ""))
    return Exit.OK


def _close_books(store: Store, info: RunInfo, settings: Settings) -> None:
    """Write the summary and the reports of what there is, because no other process will."""
    from proctor.render.reporters import write_reports
    from proctor.runfolder.read import RunData
    from proctor.runfolder.write import RunFolder
    from proctor.runs.holding import alone
    from proctor.store.blobs import open_blobs

    if not info.folder or not Path(info.folder).is_dir():
        return
    with alone(Path(info.folder)) as free:
        if free:  # else the process that executes it writes them
            folder = RunFolder(Path(info.folder), blobs=open_blobs(settings.blobs_url))
            folder.finish(RunData.from_store(store, info.id), write_reports)
