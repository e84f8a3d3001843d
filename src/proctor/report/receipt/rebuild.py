"""The documents of a run made anew from its raw rows: when it is packed, and when that is checked.

One function for both sides. What a receipt holds is what these rows come to, or somebody changed it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from proctor.errors import StoreError, UsageError
from proctor.model.plan import Plan
from proctor.model.run import RunInfo
from proctor.report.data import RunData
from proctor.report.files import make_folder, write_json
from proctor.report.folder import RunFolder, encode_manifest
from proctor.report.reporters import built_in
from proctor.report.series import NAME as SERIES
from proctor.report.series import Series, SeriesRow, encode_row
from proctor.report.summary import run_fields

RAW = ("manifest.json", "series.jsonl", "summary.json")
"""What everything else is made from: the plan, the attempts, and how the run ended."""


def write_raw(info: RunInfo, plan: Plan, rows: Iterable[SeriesRow], folder: Path) -> int:
    """Only what was measured; how many attempts that is. The summary has no more than how the run ended."""
    make_folder(folder)
    (folder / "manifest.json").write_text(encode_manifest(info, plan))
    write_json(folder / "summary.json", {"run": run_fields(info)})
    series, number = Series(folder / SERIES), 0
    try:
        for row in rows:
            series.append(encode_row(info.id, row))
            number += 1
    finally:
        series.close()
    return number


def write_documents(data: RunData, folder: Path) -> None:
    """Every file of the run folder but the artifacts, by the built-in reporters alone."""
    writer = RunFolder(folder)
    try:
        writer.begin(
            data.info, Plan(trials=tuple(trial.planned for trial in data.trials), warnings=data.warnings)
        )
        for row in data.rows():
            writer.append(row.trial, row.record, row.counts)
    finally:
        writer.close()
    (folder / SERIES).touch()
    for name, reporter in built_in().items():
        try:
            reporter(data, folder)
        except (StoreError, UsageError):
            raise
        except Exception as error:
            raise UsageError(
                f"the report '{name}' cannot be made: {type(error).__name__}: {error}"
            ) from error


def installed_version() -> str:
    """The version of this Proctor."""
    from importlib.metadata import version

    return version("proctor-bench")
