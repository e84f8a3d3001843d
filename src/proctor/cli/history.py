"""`proctor history`: a series of runs over time, with its lasting changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from proctor.cli.reading import undisturbed
from proctor.errors import Exit

if TYPE_CHECKING:
    from proctor.verdicts.history.model import History, Line

MOST_MAIN = 4
MOST_RUNS = 60
MOST_LINES = 40
"""Lines of the table of points, agents and tasks."""
MOST_SPARKS = 60
"""Characters of a sparkline: the newest runs."""


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
    from proctor.settings import load_settings
    from proctor.store.open import open_store
    from proctor.verdicts.history.collect import collect

    with open_store(load_settings().store_url, create=False) as store:
        history = collect(store, series, metric=metric, last=last, only=only)
    if html_file:
        from proctor.render.history_page import write
        from proctor.runfolder.files import make_folder

        make_folder(html_file.parent)
        write(history, html_file)
    if as_json:
        from proctor.cli.table import print_json
        from proctor.verdicts.history.document import to_mapping

        print_json(to_mapping(history))
    else:
        _print(history)
        if html_file:
            print(f"\nwritten: {html_file}")
    return Exit.OK


def _print(history: History) -> None:
    from proctor.cli.table import printable, say
    from proctor.verdicts.history.words import captions, differences, left_out, sentence

    say(_text(sentence(history)), heading=True)
    for said in [*left_out(history), *differences(history), *history.notes]:
        say(f"! {_text(said)}", indent="  ")
    first = (history.main or list(history.lines))[:MOST_MAIN]
    _print_runs(history, first)
    _print_lines(history, [line for line in history.lines if line not in first])
    print()
    for said in captions(history):
        say(printable(said))


def _print_runs(history: History, lines: Sequence[Line]) -> None:
    """The main lines as rows of bars, and a row per run."""
    from proctor.cli.table import bold, line_width, print_table
    from proctor.render.layout import shorten, width
    from proctor.verdicts.history.words import date_text, line_title, sparkline

    if not lines:
        return
    print()
    room = line_width() or 10_000
    titles = [shorten(_text(line_title(history, line)), room // 2) for line in lines]
    wide = max(map(width, titles))
    sparks = min(MOST_SPARKS, room - wide - 2)
    for line, title in zip(lines, titles, strict=True):
        print(f"{bold(title + ' ' * (wide - width(title)))}  {sparkline(line)[-sparks:]}")
    print()
    rows = [
        (
            run.id,
            date_text(run.at),
            _text(run.version) or "–",
            *(cell for line in lines for cell in _cells(line, at, single=len(lines) == 1)),
            _text(_note(history, lines, at)),
        )
        for at, run in enumerate(history.runs)
    ]
    if len(rows) > MOST_RUNS:
        print(f"{len(rows) - MOST_RUNS} older runs are not listed; --json lists all of them")
    single = ("value", "95 % interval", "n")
    columns = single if len(lines) == 1 else tuple(_text(line.name) for line in lines)
    numbers = range(3, 3 + len(columns))
    print_table(
        ("run", "date, UTC", "commit", *columns, ""),
        rows[-MOST_RUNS:],
        right=numbers,
        whole=(0, 1),
        spare=(2,),
        wrap=(3 + len(columns),),
    )


def _cells(line: Line, at: int, *, single: bool) -> tuple[str, ...]:
    from proctor.verdicts.history.words import interval_text, value_text

    value = line.values[at]
    shown, span = _text(value_text(line, value)), _text(interval_text(line, value))
    if single:
        return shown, span, str(value.n) if value else "–"
    return (f"{shown} ({span})" if value else "–",)


def _note(history: History, lines: Sequence[Line], at: int) -> str:
    """Notes on one run: why it does not count, that a level changed here, what differs."""
    from proctor.verdicts.history.words import change_span, change_text

    run = history.runs[at]
    if run.left_out:
        return f"left out: {run.left_out}"
    said = []
    for line in lines:
        name = f" {line.name}" if len(lines) > 1 else ""
        said += [
            f"◀{name} {change_text(line, move)} ({change_span(line, move)})"
            for move in line.moves
            if move.at == at
        ]
    return "; ".join([*said, *(["differs, see above"] if run.differs else [])])


def _print_lines(history: History, rest: Sequence[Line]) -> None:
    """Everything else in a row each: those that moved most first."""
    from proctor.cli.table import print_table, say
    from proctor.render.labels import apart
    from proctor.verdicts.history.words import change_text, line_title, sparkline, value_text

    if not rest:
        return
    rows = []
    shared, own = apart([line.name for line in rest[:MOST_LINES]])
    for line, name in zip(rest, own, strict=False):
        changes = ", ".join(f"{change_text(line, move)} at {history.runs[move.at].id}" for move in line.moves)
        rows.append(
            (
                _text(line_title(history, line, name)),
                sparkline(line)[-MOST_SPARKS:],
                _text(value_text(line, line.latest)),
                len(line.known),
                _text(changes) or "–",
            )
        )
    print()
    if "=" in shared:
        say(f"fixed: {_text(shared)}", indent="  ")
    headers = ("line", "over the runs", "newest", "runs", "changes")
    print_table(headers, rows, right=(2, 3), whole=(1,), wrap=(0, 4))
    if len(rest) > len(rows):
        print(f"and {len(rest) - len(rows)} more; --point TEXT picks, --json lists all of them")


def _text(text: str) -> str:
    from proctor.cli.table import printable

    return printable(text.replace("\u202f", " "))
