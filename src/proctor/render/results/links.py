"""Addresses of other files, as seen from the folder of a page: a report, a trial's result."""

from __future__ import annotations

import os
from pathlib import Path

from proctor.model.document import Cell
from proctor.verdicts.compare.results import ResultSet


def address(file: Path, folder: Path) -> str:
    """From the folder of a page to a file; empty when there is no such file."""
    return os.path.relpath(file, folder) if file.is_file() else ""


def run_link(results: ResultSet, folder: Path, text: str = "") -> Cell:
    """A run or file by its name, which leads to its report."""
    report = address(Path(results.folder, "report.html"), folder) if results.folder else ""
    return Cell(text=text or results.label, href=report)


def trial_link(results: ResultSet, trial: str, folder: Path) -> str:
    """The address of a trial's result; empty when there is none."""
    return address(Path(results.folder, trial, "result.json"), folder) if results.folder and trial else ""
