"""Judge a run by its own gates when it has ended, as the command line does; the verdict is an event.

What a rule compares with is a run of the same project, or of the default project a pinned baseline: never a
file that the spec names.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from proctor.errors import NotFoundError
from proctor.render.ci import comment
from proctor.render.results.gate import gate
from proctor.runfolder.files import write_atomic
from proctor.runfolder.read import RunData
from proctor.runs.gating import judge_run, keep_verdict
from proctor.settings import Settings
from proctor.store.service.ownership import DEFAULT
from proctor.store.store import Store
from proctor.verdicts.gate.baselines import read_baselines
from proctor.verdicts.gate.rules import read_rules

COMMENT = "gate.md"
"""In the run's folder: the verdict as a comment of a pull request."""


def judge_ended(store: Store, run_id: str, project: str, settings: Settings) -> None:
    """Judge a run, and keep the verdict beside it and as an event; nothing where it has no gates."""
    gates = store.run(run_id).resolved.get("gates") or ()
    if not gates:
        return
    own = settings if project == DEFAULT else replace(settings, baselines=settings.home / "none.json")
    wanted = read_rules(gates).baseline
    named = _baseline(store, wanted, project, own) if wanted else None
    data = RunData.from_store(store, run_id)
    found = judge_run(data, gates, own, baseline=named, project=project)
    if found is None:
        return
    keep_verdict(found, data.info)
    if data.info.folder and Path(data.info.folder, "manifest.json").is_file():
        write_atomic(Path(data.info.folder, COMMENT), comment(gate(found)))
    told = {"verdict": found.verdict.value, "sentence": found.sentence}
    store.service.queue.tell(run_id, "run.judged", told)


def _baseline(store: Store, wanted: str, project: str, settings: Settings) -> str:
    if wanted in read_baselines(settings.baselines):
        return wanted
    found = store.service.ownership.find(wanted, project)
    if found is None or Path(found).exists():
        raise NotFoundError(f"the baseline '{wanted[:100]}' is no run of the project '{project}'")
    return found
