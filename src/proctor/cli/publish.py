"""`proctor publish`: stored runs as a site of static pages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from proctor.cli.reading import undisturbed
from proctor.errors import Exit
from proctor.quantity import plural

if TYPE_CHECKING:
    from proctor.model.document import Document
    from proctor.model.run import RunInfo
    from proctor.store.store import Store

MOST = 1000


@click.command(name="publish")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.argument("refs", metavar="[RUN]...", nargs=-1)
@click.option("--series", multiple=True, metavar="NAME", help="Runs of this name; '*' matches anything.")
@click.option(
    "--last",
    type=click.IntRange(1, 10_000),
    default=MOST,
    show_default=True,
    help="Maximum number of runs, of each --series or of all, newest first.",
)
@click.option(
    "--compare",
    "pairs",
    multiple=True,
    nargs=2,
    metavar="A B",
    help="Also compare two of these runs; the two newest of each series always are.",
)
@click.option(
    "--ab",
    "saved",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also show a comparison that 'proctor ab' saved.",
)
@click.option("--title", default="Benchmark results", show_default=True, help="Heading of the first page.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
@undisturbed
def command(
    folder: Path,
    refs: tuple[str, ...],
    series: tuple[str, ...],
    last: int,
    pairs: tuple[tuple[str, str], ...],
    saved: tuple[Path, ...],
    title: str,
    as_json: bool,
) -> int:
    """Write runs, their trials, series and comparisons to DIR as pages for any web host, or for a browser.

    Without RUN and --series all runs are shown. A second time only pages that changed are written, and pages
    of runs that are no longer chosen are removed; a DIR with anything else in it is refused.
    """
    from proctor.errors import UsageError
    from proctor.render.publish.build import PublishRequest, publish
    from proctor.settings import load_settings
    from proctor.store.open import open_store

    with open_store(load_settings().store_url, create=False) as store:
        runs = _chosen(store, refs, series, last)
        known = {run.id for run in runs}
        compared = tuple((store.run(a).id, store.run(b).id) for a, b in pairs)
        for run_id in (each for pair in compared for each in pair):
            if run_id not in known:
                raise UsageError(f"--compare: run {run_id} is not among the runs that are published")
        request = PublishRequest(
            folder=folder,
            title=title,
            runs=runs,
            pairs=compared,
            measured=tuple((path.stem, _measured(path)) for path in saved),
        )
        site = publish(store, request)
    if as_json:
        from proctor.cli.table import print_json

        print_json(
            {
                "folder": str(folder),
                "index": str(folder / "index.html"),
                "runs": len(runs),
                "pages": site.pages,
                "written": site.written,
                "removed": site.removed,
            }
        )
    else:
        said = f"{site.pages} pages, {len(site.written)} written, {len(site.removed)} removed"
        print(f"{plural(len(runs), 'run')}: {said}\nopen {folder / 'index.html'}")
    return Exit.OK


def _chosen(store: Store, refs: tuple[str, ...], series: tuple[str, ...], last: int) -> tuple[RunInfo, ...]:
    """The runs to show, newest first, each once."""
    from proctor.errors import NotFoundError

    found: dict[str, RunInfo] = {}
    for ref in refs:
        run = store.run(ref)
        found[run.id] = run
    for name in series:
        named = store.runs(name=name, limit=last)
        if not named:
            raise NotFoundError(f"no run named '{name}'")
        found |= {run.id: run for run in named}
    if not refs and not series:
        found = {run.id: run for run in store.runs(limit=last)}
    if not found:
        raise NotFoundError("no runs yet: start one with 'proctor run SPEC'")
    return tuple(sorted(found.values(), key=lambda run: (run.created_at, run.id), reverse=True))


def _measured(path: Path) -> Document:
    from proctor.engine.ab_document import comparison
    from proctor.engine.ab_file import read

    return comparison(read(path), saved=None)
