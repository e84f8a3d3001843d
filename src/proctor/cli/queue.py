"""`proctor queue`: how much work waits and runs, by what it needs. For people, and for autoscalers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@click.command("queue")
@click.option(
    "--slots",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    help="Trials that one worker executes at a time: its --parallel.",
)
@click.option(
    "--every",
    "every_s",
    metavar="SECONDS",
    type=click.FloatRange(1, 3600),
    help="Print again so often, a line of JSON each time, until it is stopped.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, in one line.")
def command(slots: int, every_s: float | None, as_json: bool) -> int:
    """Show how many trials run, and how many could run if there were workers enough.

    'workers' is how many workers with so many --slots would execute all of it at once: the number that an
    autoscaler needs. Trials of runs that nobody has started do not count, nor those that wait for their next
    try or for their project's quota.
    """
    from proctor.errors import Exit

    ask = _source(slots)
    if every_s is not None:
        _repeat(ask, every_s)
    elif as_json:
        print(_line(ask()))
    else:
        _print(ask())
    return Exit.OK


def _source(slots: int) -> Callable[[], Mapping[str, Any]]:
    """From the server that commands talk to, or from the store."""
    from proctor.cli.remote import find_server
    from proctor.store.open import open_store
    from proctor.store.service.demand import as_data

    settings, client = find_server()

    def ask() -> Mapping[str, Any]:
        if client is not None:
            return client.demand(slots)
        with open_store(settings.store_url, create=False) as store:
            return as_data(store.service.monitor.demand(), slots)

    return ask


def _line(found: Mapping[str, Any]) -> str:
    import json

    return json.dumps(found, ensure_ascii=False)


def _repeat(ask: Callable[[], Mapping[str, Any]], every_s: float) -> None:
    """Until SIGTERM or Ctrl-C. A store that does not answer for a while ends nothing."""
    import signal
    import sys
    import threading

    from proctor.errors import StoreError

    over = threading.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: over.set())
    while not over.is_set():
        try:
            print(_line(ask()), flush=True)
        except StoreError as error:
            print(error, file=sys.stderr, flush=True)
        over.wait(every_s)


def _print(found: Mapping[str, Any]) -> None:
    from proctor.cli.table import print_table, seconds

    print(
        f"{found['running']} running, {found['waiting']} could run now, {found['delayed']} later; "
        f"workers with {found['slots']} at a time: {found['wanted_workers']}"
    )
    if found["classes"]:
        print_table(
            ("kind", "back end", "labels", "running", "waiting", "later", "oldest", "memory"),
            [
                (
                    each["kind"],
                    each["backend"],
                    each["labels"] or "–",
                    str(each["running"]),
                    str(each["waiting"]),
                    str(each["delayed"]),
                    seconds(each["oldest_s"]),
                    f"{each['memory_mb']} MB" if each["memory_mb"] else "–",
                )
                for each in found["classes"]
            ],
            right=(3, 4, 5, 6, 7),
        )
