"""`proctor ls`: the runs in the store, newest first. Its cost does not depend on how large the runs are."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from proctor.errors import Exit

if TYPE_CHECKING:
    from proctor.model.run import RunInfo

STATUSES = ("pending", "running", "done", "interrupted", "cancelled")


@click.command("ls")
@click.option(
    "--limit", type=click.IntRange(1), default=30, show_default=True, help="Maximum number of runs."
)
@click.option("--name", metavar="NAME", help="Filter by name; '*' matches anything.")
@click.option("--status", type=click.Choice(STATUSES), help="Filter by status.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(limit: int, name: str | None, status: str | None, as_json: bool) -> int:
    """List runs, newest first."""
    from proctor.cli.remote import reading_settings
    from proctor.store.open import open_store

    url = reading_settings().store_url
    with open_store(url, create=False) as store:
        runs = store.runs(limit=limit, name=name, status=status)
        running = [run.id for run in runs if run.status == "running"]
        stalled = store.stalled() if running else set()
        waiting = store.unattended(running) if as_json else {}
    if as_json:
        from proctor.cli.table import print_json

        print_json(
            [_as_json(run, stalled=run.id in stalled, waiting=waiting.get(run.id, "")) for run in runs]
        )
    elif runs:
        _print(runs, stalled)
    else:
        print("No run matches." if name or status else "No runs yet. Start one with 'proctor run SPEC'.")
    return Exit.OK


def _print(runs: Sequence[RunInfo], stalled: set[str]) -> None:
    from proctor.cli.table import print_table, printable

    print_table(
        ("run", "name", "status", "trials", "outcomes", "started", "took"),
        [
            (
                run.id,
                printable(run.name),
                status_text(run, stalled=run.id in stalled),
                f"{run.done}/{run.total}",
                outcomes_text(run.counts),
                date_text(run.started_at or run.created_at),
                took_text(run),
            )
            for run in runs
        ],
        right=(3, 6),
        whole=(0, 5),
        spare=(5,),
        wrap=(4,),
    )


def _as_json(run: RunInfo, *, stalled: bool, waiting: str) -> dict[str, Any]:
    names = (
        "id",
        "name",
        "kind",
        "created_at",
        "started_at",
        "finished_at",
        "seed",
        "total",
        "done",
        "notes",
        "folder",
    )
    return {
        **{name: getattr(run, name) for name in names},
        "status": run.status.value,
        "stalled": stalled,
        "waiting": waiting,
        "counts": dict(run.counts),
        "tags": list(run.tags),
    }


def status_text(run: RunInfo, *, stalled: bool) -> str:
    """The status, and that nothing moves although it says `running`."""
    return f"{run.status.value} (stalled)" if stalled else run.status.value


def outcomes_text(counts: Mapping[str, int]) -> str:
    """Outcomes and how many trials each, most frequent first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{number} {outcome}" for outcome, number in ordered) or "–"


def date_text(at: float) -> str:
    """A moment in local time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def took_text(run: RunInfo) -> str:
    """From the first start to the last end; open while it runs."""
    from proctor.cli.table import seconds

    if run.started_at is None or run.finished_at is None:
        return "–"
    return seconds(run.finished_at - run.started_at)
