"""`proctor cancel`: end a run for good; what has ended is kept."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from proctor.errors import Exit

if TYPE_CHECKING:
    from proctor.client.client import Client


@click.command(name="cancel")
@click.argument("ref", metavar="RUN")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(ref: str, as_json: bool) -> int:
    """Cancel RUN: an id, the beginning of one, a name, 'latest' or a run folder.

    No further trial starts; trials that are running are stopped within seconds.
    """
    from proctor.cli.remote import find_server
    from proctor.runs.actions import cancel
    from proctor.store.blobs import blobs_of
    from proctor.store.open import open_store

    settings, client = find_server()
    if client:
        return _remotely(client, ref, as_json=as_json)
    with open_store(settings.store_url, create=False) as store:
        done = cancel(store, blobs_of(settings), ref)
    info = done.before
    status = info.status.value if done.was_over else "cancelled"
    said = _Said(info.id, info.name, status, done.trials, list(done.workers), over=done.was_over)
    return _say(said, as_json=as_json)


@dataclass(frozen=True, slots=True)
class _Said:
    """What a cancellation did."""

    run: str
    name: str
    status: str
    cancelled_trials: int
    workers: list[str]
    over: bool


def _remotely(client: Client, ref: str, *, as_json: bool) -> int:
    before = client.run(ref)
    over = before["status"] in {"done", "cancelled"}
    after = before if over else client.cancel(before["id"])
    ended = after["counts"].get("cancelled", 0) - before["counts"].get("cancelled", 0)
    workers = [] if over or not before["running"] else [str((before["coordinator"] or {}).get("holder", ""))]
    said = _Said(before["id"], before["name"], after["status"], max(0, ended), workers, over=over)
    return _say(said, as_json=as_json)


def _say(said: _Said, *, as_json: bool) -> int:
    from proctor.cli.table import print_json

    if as_json:
        found = asdict(said)
        print_json({name: found[name] for name in ("run", "status", "cancelled_trials", "workers")})
    elif said.over:
        print(f"run {said.run} is already {said.status}; nothing was changed")
    else:
        text = f"cancelled run {said.run} ({said.name}): {said.cancelled_trials} trials will not run"
        print(text + ("; running trials are being stopped" if said.workers else ""))
    return Exit.OK
