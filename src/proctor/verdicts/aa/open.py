"""Open the run that a noise certificate is about, with its repetitions and the noise of its kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from proctor.errors import UsageError
from proctor.model.trial import RunStatus
from proctor.runfolder.read import RunData
from proctor.verdicts.aa.scores import Asked, certify_scores
from proctor.verdicts.aa.times import METRIC, certify_times
from proctor.verdicts.compare.facts import run_facts, same_machine
from proctor.verdicts.compare.open import noise_from_store
from proctor.verdicts.compare.results import from_run

if TYPE_CHECKING:
    from proctor.store.open import StorePool
    from proctor.store.store import Store
    from proctor.verdicts.aa.certificate import NoiseCertificate

MOST_REPEATS = 20
"""Other runs of the same plan that are looked at."""


def certify(ref: str, asked: Asked, stores: StorePool) -> NoiseCertificate:
    """The certificate of a stored run or of a run folder."""
    folder = Path(ref)
    if folder.is_dir() and (folder / "manifest.json").is_file():
        return _certificate(RunData.from_folder(folder), asked, None, None)
    with stores.borrow() as store:
        return certify_stored(store, ref, asked)


def certify_stored(store: Store, run: str, asked: Asked, *, project: str | None = None) -> NoiseCertificate:
    """The certificate of a run of an open store. `project`: only repetitions of it count."""
    return _certificate(RunData.from_store(store, run), asked, store, project)


def _certificate(data: RunData, asked: Asked, store: Store | None, project: str | None) -> NoiseCertificate:
    repeats = _repeats(data, store, project) if store else []
    if data.info.kind == "task":
        return certify_scores(data, asked, repeats=repeats)
    if asked.rollouts is not None or asked.these_tasks is not None:
        raise UsageError(
            f"run {data.info.id} measured experiments: it has iterations, but no rollouts or tasks; "
            "remove --rollouts, --these-tasks and --tasks-like-these"
        )
    side = from_run(data, (METRIC,))
    noise = noise_from_store(store, side, side, METRIC, project=project) if store else None
    return certify_times(data, asked, noise=noise, repeats=repeats)


def _repeats(data: RunData, store: Store, project: str | None) -> list[RunData]:
    """Other whole runs of the very same plan on the same machine, oldest first."""
    info = data.info
    own = run_facts(info)
    found = []
    for brief in store.runs(name=info.name, limit=MOST_REPEATS, project=project):
        if brief.id == info.id or brief.name != info.name or brief.status is not RunStatus.DONE:
            continue
        other = store.run(brief.id)
        if (
            other.plan_digest
            and other.plan_digest == info.plan_digest
            and same_machine(run_facts(other), own)
        ):
            found.append(RunData.from_store(store, brief.id))
    return sorted(found, key=lambda each: (each.info.created_at, each.info.id))
