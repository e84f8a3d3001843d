"""Judge a run by its own gates when it has ended, as the command line does; the verdict is an event.

What a rule compares with is a run of the same project, or of the default project a pinned baseline: never a
file that the spec names.
"""

from __future__ import annotations

from pathlib import Path

from proctor.render.ci import comment
from proctor.render.results.gate import gate
from proctor.runfolder.files import write_atomic
from proctor.runfolder.read import RunData
from proctor.runs.gating import keep_verdict
from proctor.settings import Settings
from proctor.store.store import Store
from proctor.verdicts.gate.inputs import input_of_run
from proctor.verdicts.gate.open import judge, stored_baseline
from proctor.verdicts.gate.rules import read_rules

COMMENT = "gate.md"
"""In the run's folder: the verdict as a comment of a pull request."""


def judge_ended(store: Store, run_id: str, project: str, settings: Settings) -> None:
    """Judge a run, and keep the verdict beside it and as an event; nothing where it has no gates."""
    gates = store.run(run_id).resolved.get("gates") or ()
    if not gates:
        return
    rules, data = read_rules(gates), RunData.from_store(store, run_id)
    before = stored_baseline(store, rules, settings, project=project, name=data.info.name)
    found = judge(input_of_run(data, rules.metrics), rules, before, settings, project=project)
    keep_verdict(found, data.info)
    if data.info.folder and Path(data.info.folder, "manifest.json").is_file():
        write_atomic(Path(data.info.folder, COMMENT), comment(gate(found)))
    told = {"verdict": found.verdict.value, "sentence": found.sentence}
    store.service.queue.tell(run_id, "run.judged", told)
