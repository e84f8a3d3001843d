"""Addresses of a published document: they lead to pages of the site, or nowhere."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from proctor.model.document import Cell, Chart, Document, Sign
from proctor.model.place import safe_name

PER_PAGE = 500
"""Trials on one page."""
_TRIAL = re.compile(r"trials/[^/]+/(\d+)(?:\.attempt-\d+)?(?:/|$)")
_PAGES = {"report.html": "index.html", "race.html": "race.html"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Where the pages of each published run are."""

    folders: Mapping[str, str]
    """Folder of a run on this machine → its id."""

    @property
    def ids(self) -> frozenset[str]:
        """Every run that has a page."""
        return frozenset(self.folders.values())


def run_page(run_id: str) -> str:
    """The first page of a run."""
    return f"runs/{safe_name(run_id)}/index.html"


def series_page(name: str) -> str:
    """The page of a series."""
    return f"series/{safe_name(name)}.html"


def trial_page(run_id: str, index: int) -> str:
    """Where one trial of a run is shown."""
    return f"{trials_page(run_id, index // PER_PAGE)}#t{index}"


def trials_page(run_id: str, number: int) -> str:
    """One of the pages with the trials of a run."""
    return f"runs/{safe_name(run_id)}/trials{f'-{number + 1}' if number else ''}.html"


def between(page: str, target: str) -> str:
    """The address of one page of the site as another page writes it."""
    path, mark, anchor = target.partition("#")
    return posixpath.relpath(path, posixpath.dirname(page) or ".") + mark + anchor


def relinked(document: Document, links: Links, page: str) -> Document:
    """The document as a page of the site: what leads out of the site is text."""
    base = os.path.abspath(document.folder or "/")  # noqa: PTH100 - text, and the folder may be gone

    def address(text: str, href: str) -> str:
        if href.startswith("#"):
            return href
        target = _target(os.path.normpath(os.path.join(base, href)), links) if href else ""  # noqa: PTH118
        if not target and text in links.ids:
            target = run_page(text)
        return between(page, target) if target and target != page else ""

    def moved(part: Any) -> Any:
        if isinstance(part, Chart):
            return part
        if isinstance(part, tuple):
            return tuple(map(moved, part)) if type(part) is tuple else part
        if not is_dataclass(part) or isinstance(part, type):
            return part
        changed = {
            each.name: new
            for each in fields(part)
            if (new := moved(old := getattr(part, each.name))) is not old and new != old
        }
        if isinstance(part, Cell | Sign):
            changed["href"] = address(part.text, part.href)
        return replace(part, **changed) if changed else part

    found: Document = moved(replace(document, links=()))
    return found


def _target(path: str, links: Links) -> str:
    """The page of the site for a file on this machine; empty when it has none."""
    folder = path
    while folder not in links.folders:
        above = os.path.dirname(folder)  # noqa: PTH120 - text: the folder may be gone
        if above == folder:
            return ""
        folder = above
    run_id, inside = links.folders[folder], path[len(folder) :].lstrip("/")
    if trial := _TRIAL.match(inside):
        return trial_page(run_id, int(trial[1]))
    name = _PAGES.get(inside)
    return f"runs/{safe_name(run_id)}/{name}" if name else ""
