"""Judge a run that has just ended by the gates of its own spec, and keep the verdict beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proctor.errors import StoreError
from proctor.model.run import RunInfo
from proctor.render.results.run import put_gate
from proctor.runfolder.files import write_json
from proctor.runfolder.read import RunData
from proctor.runs.process_resources import Resources
from proctor.verdicts.gate.inputs import input_of_run
from proctor.verdicts.gate.open import judge, open_baseline
from proctor.verdicts.gate.rules import read_rules
from proctor.verdicts.gate.verdict import GateResult


def judge_run(data: RunData, gates: Sequence[Any], resources: Resources) -> GateResult | None:
    """The verdict of a run's own gates; None where it has none."""
    if not gates:
        return None
    rules = read_rules(gates)
    before = open_baseline(rules, resources.stores, resources.settings.baselines, name=data.info.name)
    return judge(input_of_run(data, rules.metrics), rules, before, resources.stores)


def keep_verdict(found: GateResult, info: RunInfo) -> str:
    """Put the verdict into the run's folder and its page, when they are there; why that failed, if it did."""
    folder = Path(info.folder) if info.folder else None
    if folder is None or not (folder / "manifest.json").is_file():
        return ""
    try:
        write_json(folder / "gate.json", found.to_dict())
        put_gate(info, folder)
    except StoreError as error:
        return f"the verdict could not be saved in the run's folder: {error}"
    return ""
