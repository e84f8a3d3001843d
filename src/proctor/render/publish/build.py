"""Bring a site up to date: runs with their trials, series, comparisons, races, and the index of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from proctor.errors import NotFoundError, UsageError
from proctor.model.document import Cell, Document
from proctor.model.place import safe_name
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.render.document.html import html
from proctor.render.publish.index import SEARCH, Compared, Seen, index_document
from proctor.render.publish.relink import (
    PER_PAGE,
    Links,
    between,
    relinked,
    run_page,
    series_page,
    trials_page,
)
from proctor.render.publish.site import Site
from proctor.runfolder.read import RunData

if TYPE_CHECKING:
    from proctor.store.store import Store

INDEX = "index.html"
Ways = Mapping[str, tuple[str, str]]
"""What a page leads to: its name there, its text, and the page."""
_NO_WAYS: Ways = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRequest:
    """What a site shows."""

    folder: Path
    title: str
    runs: tuple[RunInfo, ...]
    """Newest first."""
    pairs: tuple[tuple[str, str], ...] = ()
    """Runs that are compared, by id, besides the two newest of each series."""
    measured: tuple[tuple[str, Document], ...] = ()
    """Saved comparisons of 'proctor ab', each with its name."""


def publish(store: Store, request: PublishRequest) -> Site:
    """Write what has changed since the last time; what no longer belongs to the site is removed."""
    from importlib.metadata import version

    site = Site(request.folder, f"{version('proctor-bench')} {request.title}")
    builder = _Builder(store, request, site)
    for run in request.runs:
        builder.run(run)
    series = list(builder.every_series())
    compared = [*builder.races(), *builder.comparisons(), *builder.measured()]
    document = index_document(request.title, request.runs, series, compared)
    site.write(INDEX, "always", html(document, script=SEARCH))
    site.close()
    return site


class _Builder:
    def __init__(self, store: Store, request: PublishRequest, site: Site) -> None:
        self.store, self.request, self.site = store, request, site
        self.marks = {run.id: _made_from(run) for run in request.runs}
        self.links = Links(folders={_folder(run): run.id for run in request.runs})
        self.series: dict[str, list[RunInfo]] = {}
        for run in request.runs:
            self.series.setdefault(run.name, []).append(run)

    def page(self, document: Document, page: str, ways: Ways = _NO_WAYS) -> str:
        """The text of a page, with the ways that lead from it to other pages of the site."""
        moved = relinked(document, self.links, page)
        ways = {"site": (self.request.title, INDEX), **ways}
        about = tuple(
            (name, Cell(text=text, href=between(page, each))) for name, (text, each) in ways.items()
        )
        return html(replace(moved, about=(*about, *moved.about)))

    def run(self, run: RunInfo) -> None:
        """The pages of a run: its report, its trials, and of a race the race."""
        mark, first = self.marks[run.id], run_page(run.id)
        if self.site.keep(f"{first.removesuffix(INDEX)}", mark):
            return
        from proctor.render.publish.trials import trials_document
        from proctor.render.results.run import run_document

        data = RunData.from_store(self.store, run.id)
        trials = [data.trials[at : at + PER_PAGE] for at in range(0, len(data.trials), PER_PAGE)]
        ways = {
            "series": (run.name, series_page(run.name)),
            "each trial": ("outcomes, reasons and logs", trials_page(run.id, 0)),
        }
        if data.info.race:
            race = _race(data)
            ways["race"] = (race.title, first.replace(INDEX, "race.html"))
            self._write_compared(ways["race"][1], mark, race)
        report = replace(run_document(data), footer="Written by 'proctor publish'.", folder=_folder(run))
        self.site.write(first, mark, self.page(report, first, ways))
        for number, part in enumerate(trials):
            page = trials_page(run.id, number)
            document = trials_document(data, part, number, len(trials))
            others = {
                f"page {at + 1}": (f"trials from {at * PER_PAGE}", trials_page(run.id, at))
                for at in range(len(trials))
                if at != number
            }
            self.site.write(page, mark, self.page(document, page, {"run": (run.id, first), **others}))

    def every_series(self) -> Iterator[Seen]:
        """The history of each series, newest first; what the index says of it."""
        for name, runs in self.series.items():
            page, mark = series_page(name), [self.marks[run.id] for run in runs]
            if not self.site.keep(page, mark):
                document, changes = self._history(name, runs)
                self.site.write(page, mark, self.page(document, page), {"changes": changes})
            changes = self.site.facts(page).get("changes")
            newest = runs[0]
            yield Seen(name, f"{newest.kind}s", len(runs), newest.id, newest.created_at, changes)

    def _history(self, name: str, runs: Sequence[RunInfo]) -> tuple[Document, int | None]:
        from proctor.render.results.history import history
        from proctor.verdicts.history.collect import collect
        from proctor.verdicts.history.detect import LEAST_RUNS

        ids = {run.id for run in runs}
        try:
            found = collect(self.store, name, last=len(self.request.runs) + 1000, among=ids)
        except UsageError as error:
            return Document(kind="history", title=f"{name} over time", headline=f"No history: {error}."), None
        told = any(len(line.known) >= LEAST_RUNS for line in found.lines)
        changes = sum(len(line.moves) for line in found.lines) if told else None
        return replace(history(found, folder=Path("/")), footer="Written by 'proctor publish'."), changes

    def comparisons(self) -> Iterator[Compared]:
        """The newest complete run of each series against the one before it, and the pairs that were named."""
        asked = list(self.request.pairs)
        for runs in self.series.values():
            done = [run.id for run in runs if run.status is RunStatus.DONE][:2]
            asked += [(done[1], done[0])] if len(done) > 1 else []
        for before, after in dict.fromkeys(asked):
            page = f"compare/{safe_name(f'{before}..{after}')}.html"
            mark = [self.marks[before], self.marks[after]]
            if not self.site.keep(page, mark):
                document = self._comparison(before, after)
                if document is None:
                    continue
                self._write_compared(page, mark, document)
            yield Compared(**self.site.facts(page), page=page)

    def races(self) -> Iterator[Compared]:
        """Races are comparisons too."""
        for run in self.request.runs:
            page = run_page(run.id).replace(INDEX, "race.html")
            if facts := self.site.facts(page):
                yield Compared(**facts, page=page)

    def measured(self) -> Iterator[Compared]:
        """Comparisons that 'proctor ab' saved."""
        for name, document in self.request.measured:
            page = f"ab/{safe_name(name)}.html"
            self._write_compared(page, name, replace(document, folder="/"))
            yield Compared(**self.site.facts(page), page=page)

    def _write_compared(self, page: str, mark: Any, document: Document) -> None:
        facts = {
            "title": document.title,
            "verdict": document.verdict,
            "tone": document.tone,
            "sentence": document.headline,
        }
        self.site.write(page, mark, self.page(document, page), facts)

    def _comparison(self, before: str, after: str) -> Document | None:
        from proctor.render.results.compare import comparison
        from proctor.verdicts.compare.by_task import SPENT
        from proctor.verdicts.compare.open import compare_stored

        try:
            found = compare_stored(self.store, (before, after), also=SPENT)
        except (UsageError, NotFoundError):  # nothing that both have
            return None
        document = comparison(*found, folder=Path("/"))
        about = (("A", Cell(text=before, code=True)), ("B", Cell(text=after, code=True)))
        return replace(document, about=about, footer="Written by 'proctor publish'.")


def _race(data: RunData) -> Document:
    from proctor.render.results.race import race_document
    from proctor.verdicts.race.judge import judge_race

    return race_document(judge_race(data), data.info)


def _folder(run: RunInfo) -> str:
    """Where its files are or were; of a run that never had a folder a place that nothing else has."""
    return os.path.abspath(run.folder) if run.folder else f"/runs/{run.id}"  # noqa: PTH100 - text


def _made_from(run: RunInfo) -> list[Any]:
    """What a run's pages depend on: they are made again when one of these changes."""
    try:
        judged = os.stat(f"{run.folder}/gate.json").st_mtime_ns if run.folder else 0  # noqa: PTH116 - many
    except OSError:
        judged = 0
    counts = sorted(run.counts.items())
    return [run.id, run.name, run.status.value, run.done, run.total, run.finished_at, counts, judged]
