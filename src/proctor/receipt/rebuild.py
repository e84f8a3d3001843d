"""The documents of a run generated again from its raw rows: when it is packed, and when that is checked.

One function for both sides. What a receipt holds is what these rows come to, or somebody changed it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from proctor.errors import StoreError, UsageError
from proctor.model.place import attempt_folder, trial_folder
from proctor.model.plan import Plan, PlannedTrial
from proctor.model.record import AttemptRecord, AttemptRow
from proctor.model.run import RunInfo
from proctor.render.reporters import built_in
from proctor.render.results.folder import write_run
from proctor.render.results.trial_files import files_of
from proctor.runfolder.files import make_folder, write_json
from proctor.runfolder.read import RunData
from proctor.runfolder.result import ResultWriter
from proctor.runfolder.series import NAME as SERIES
from proctor.runfolder.series import Series, encode_row
from proctor.runfolder.write import encode_manifest, run_fields

RAW = ("manifest.json", "series.jsonl", "summary.json")
"""The source of all other documents: the plan, the attempts, and how the run ended."""


def write_raw(info: RunInfo, plan: Plan, rows: Iterable[AttemptRow], folder: Path) -> int:
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


def write_run_documents(data: RunData, folder: Path) -> None:
    """Every file about the whole run except the series, by the built-in reporters alone."""
    make_folder(folder)
    plan = Plan(trials=tuple(trial.planned for trial in data.trials), warnings=data.warnings)
    (folder / "manifest.json").write_text(encode_manifest(data.info, plan))
    reporters = {**built_in(), "rollouts": write_run if data.info.kind == "task" else _nothing}
    for name, reporter in reporters.items():
        try:
            reporter(data, folder)
        except (StoreError, UsageError):
            raise
        except Exception as error:
            raise UsageError(
                f"the report '{name}' cannot be made: {type(error).__name__}: {error}"
            ) from error


def _nothing(data: RunData, folder: Path) -> None:
    """An experiment has no rollouts."""


class TrialDocuments:
    """Makes the files of one trial: many trials, so they are made one by one and never all at once."""

    def __init__(self, info: RunInfo) -> None:
        self._info = info
        self._results = ResultWriter(info)

    def of(self, trial: PlannedTrial, record: AttemptRecord) -> dict[str, bytes]:
        """Path → content, for the attempt that counts."""
        found = {f"{trial_folder(trial)}/result.json": self._results.encode(trial, record)}
        if trial.kind == "task":
            place = attempt_folder(trial, record.number)
            found |= {f"{place}/{name}": text for name, text in files_of(self._info.id, trial, record)}
        return {path: text.encode("utf-8", "replace") for path, text in found.items()}


def installed_version() -> str:
    """The version of this Proctor."""
    from importlib.metadata import version

    return version("proctor-bench")
