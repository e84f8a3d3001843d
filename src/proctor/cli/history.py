"""`proctor history`: a series of runs over time, with its lasting changes."""

from __future__ import annotations

import click

from proctor.cli.outputs import Outputs, takes_outputs
from proctor.cli.reading import undisturbed
from proctor.errors import Exit


@click.command(name="history")
@click.argument("series", metavar="SERIES")
@click.option(
    "--metric", default="", help="Metric to show. [time, by the clock that leads, or pass_rate for rollouts]"
)
@click.option(
    "--point",
    "only",
    default="",
    metavar="TEXT",
    help="Only points, agents or tasks whose name contains this text.",
)
@click.option(
    "--last",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="Maximum number of runs, newest first.",
)
@takes_outputs
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@undisturbed
def command(series: str, metric: str, only: str, last: int, as_json: bool, outputs: Outputs) -> int:
    """Show all runs named SERIES over time.

    Change-point detection finds lasting changes. Runs that the infrastructure broke are shown, but not
    counted.
    """
    from proctor.settings import load_settings
    from proctor.store.open import open_store
    from proctor.verdicts.history.collect import collect

    with open_store(load_settings().store_url, create=False) as store:
        found = collect(store, series, metric=metric, last=last, only=only)
    if any(outputs) or not as_json:
        from proctor.render.results.history import history

        outputs.show(history(found, folder=outputs.folder), quiet=as_json)
    if as_json:
        from proctor.cli.table import print_json
        from proctor.verdicts.history.document import to_mapping

        print_json(to_mapping(found))
    return Exit.OK
