"""Addresses of other files, as seen from the folder of a page: a report, a trial's result."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.model.document import Cell

if TYPE_CHECKING:
    from proctor.verdicts.compare.results import ResultSet


def address(run: str, file: str, page: Path) -> str:
    """From the folder of a page to a file of a run; empty when there is no such file."""
    found = Path(run, file)
    return os.path.relpath(found, page) if run and found.is_file() else ""


def run_link(results: ResultSet, folder: Path, text: str = "") -> Cell:
    """A run or file by its name, which leads to its report."""
    return Cell(text=text or results.label, href=address(results.folder, "report.html", folder))


def trial_link(results: ResultSet, trial: str, folder: Path) -> str:
    """The address of a trial's result; empty when there is none."""
    if not trial:
        return ""
    places = (f"{trial}/result.json", f"{trial}/evaluation_results.json")
    return next(filter(None, (address(results.folder, place, folder) for place in places)), "")
