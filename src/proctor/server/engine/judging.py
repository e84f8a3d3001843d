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
from proctor.runs.process_resources import Resources
from proctor.store.store import Store
from proctor.verdicts.gate.inputs import input_of_run
from proctor.verdicts.gate.open import judge, stored_baseline
from proctor.verdicts.gate.rules import read_rules

COMMENT = "gate.md"
"""In the run's folder: the verdict as a comment of a pull request."""


def judge_ended(resources: Resources, run_id: str, project: str) -> None:
    """Judge a run, and keep the verdict beside it and as an event; nothing where it has no gates."""
    with resources.stores.borrow() as store:
        _judge(store, resources, run_id, project)


def _judge(store: Store, resources: Resources, run_id: str, project: str) -> None:
    gates = store.run(run_id).resolved.get("gates") or ()
    if not gates:
        return
    rules, data = read_rules(gates), RunData.from_store(store, run_id)
    before = stored_baseline(store, rules, resources.settings, project=project, name=data.info.name)
    found = judge(input_of_run(data, rules.metrics), rules, before, resources.stores, project=project)
    keep_verdict(found, data.info)
    if data.info.folder and Path(data.info.folder, "manifest.json").is_file():
        write_atomic(Path(data.info.folder, COMMENT), comment(gate(found)))
    told = {"verdict": found.verdict.value, "sentence": found.sentence}
    store.service.queue.tell(run_id, "run.judged", told)
