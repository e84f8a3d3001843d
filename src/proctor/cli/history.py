"""`proctor history`: a series of runs over time, with its lasting changes."""

from __future__ import annotations

from pathlib import Path

import click

from proctor.cli.reading import undisturbed
from proctor.errors import Exit


@click.command(name="history")
@click.argument("series", metavar="SERIES")
@click.option("--metric", default="", help="Metric to show. [duration_s, or pass_rate for rollouts]")
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
@click.option(
    "--html",
    "html_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write an HTML page to this file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@undisturbed
def command(series: str, metric: str, only: str, last: int, html_file: Path | None, as_json: bool) -> int:
    """Show all runs named SERIES over time.

    Change-point detection finds lasting changes. Runs that the infrastructure broke are shown, but not
    counted.
    """
    from proctor.cli.table import print_document, print_json
    from proctor.render.results.history import history as shown
    from proctor.settings import load_settings
    from proctor.store.open import open_store
    from proctor.verdicts.history.collect import collect
    from proctor.verdicts.history.document import to_mapping

    with open_store(load_settings().store_url, create=False) as store:
        history = collect(store, series, metric=metric, last=last, only=only)
    document = shown(history)
    if html_file:
        from proctor.render.document import html

        html.write(document, html_file)
    if as_json:
        print_json(to_mapping(history))
    else:
        print_document(document)
        if html_file:
            print(f"\nwritten: {html_file}")
    return Exit.OK
