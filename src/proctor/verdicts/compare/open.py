"""Open both sides of a comparison, with how much such runs usually differ.

A side is a run folder, a result file of Proctor or another tool, or a stored run.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median

from proctor.analysis.times import Noise, run_to_run_noise
from proctor.model.outcome import Outcome
from proctor.runfolder.read import RunData
from proctor.store.open import StorePool
from proctor.store.store import Store
from proctor.verdicts.compare.by_task import with_spent
from proctor.verdicts.compare.clock import judged_metrics
from proctor.verdicts.compare.facts import run_facts, same_machine
from proctor.verdicts.compare.foreign import read_file
from proctor.verdicts.compare.judge import Comparison, compare, is_time
from proctor.verdicts.compare.results import ResultSet, from_run, samples_of
from proctor.verdicts.compare.stored import from_store

MAX_RUNS = 20
MAX_ATTEMPTS = 20_000
"""Earlier runs and attempts that tell run-to-run noise."""


def open_side(
    ref: str, stores: StorePool, metrics: tuple[str, ...] = (), also: tuple[str, ...] = ()
) -> ResultSet:
    """A run folder, a result file, or a run in the store, in that order; `also` is read of rollouts."""
    path = Path(ref)
    if path.is_dir() and (path / "manifest.json").is_file():
        data = RunData.from_folder(path)
        found = from_run(data, with_spent(data.info, metrics, also), source="folder")
        return replace(found, folder=str(path))
    if path.is_file():
        return read_file(path, metrics)
    with stores.borrow() as store:
        info = store.run(ref)
        return from_store(store, info.id, with_spent(info, metrics, also))


def usual_noise(
    a: ResultSet, b: ResultSet, metrics: tuple[str, ...], stores: StorePool, *, project: str | None = None
) -> dict[str, Noise]:
    """How much each metric moves from run to run, where earlier runs of the same code tell."""
    times = [metric for metric in metrics if is_time(metric)]
    if not times:
        return {}
    with stores.borrow() as store:
        found = {metric: noise_from_store(store, a, b, metric, project=project) for metric in times}
    return {metric: noise for metric, noise in found.items() if noise}


def compare_refs(
    refs: tuple[str, str],
    stores: StorePool,
    *,
    metrics: tuple[str, ...] = (),
    also: tuple[str, ...] = (),
    margin: float | None = None,
    higher_is_better: bool | None = None,
    these_tasks: bool | None = None,
    changed_tasks: bool = False,
    seed: int = 0,
) -> tuple[Comparison, ResultSet, ResultSet]:
    """Open both sides and judge the second against the first, knowing how much such runs usually differ."""
    a, b = (open_side(ref, stores, metrics, also) for ref in refs)
    noise = usual_noise(a, b, judged_metrics(a, b, metrics), stores)
    found = compare(
        a,
        b,
        metrics=metrics,
        margin=margin,
        higher_is_better=higher_is_better,
        noise=noise,
        these_tasks=these_tasks,
        changed_tasks=changed_tasks,
        seed=seed,
    )
    return found, a, b


def compare_stored(
    store: Store,
    runs: tuple[str, str],
    *,
    metrics: tuple[str, ...] = (),
    also: tuple[str, ...] = (),
    margin: float | None = None,
    these_tasks: bool | None = None,
    changed_tasks: bool = False,
    project: str | None = None,
) -> tuple[Comparison, ResultSet, ResultSet]:
    """As `compare_refs` for two runs of an open store, by their ids; files are not looked at."""
    a, b = (from_store(store, run, with_spent(store.run(run), metrics, also)) for run in runs)
    wanted = judged_metrics(a, b, metrics)
    times = {
        metric: noise_from_store(store, a, b, metric, project=project) for metric in wanted if is_time(metric)
    }
    noise = {metric: each for metric, each in times.items() if each}
    found = compare(
        a,
        b,
        metrics=metrics,
        margin=margin,
        noise=noise,
        these_tasks=these_tasks,
        changed_tasks=changed_tasks,
    )
    return found, a, b


def noise_from_store(
    store: Store, a: ResultSet, b: ResultSet, metric: str, *, project: str | None = None
) -> Noise | None:
    """Noise from runs of the same name with points of the same key; None when there are too few.

    The two runs that are being compared are left out: their difference is the question. `project`: only runs
    of it count.
    """
    keys = {point.key for side in (a, b) for point in side.points if point.key}
    if not keys:
        return None
    found: dict[str, list[float]] = {}
    runs = attempts = 0
    for name in sorted({side.name for side in (a, b) if side.name}):
        for brief in store.runs(name=name, limit=MAX_RUNS, project=project):
            # A name with an asterisk matches others too.
            if brief.name != name or brief.id in {a.run_id, b.run_id}:
                continue
            if not same_machine(run_facts(store.run(brief.id)), a.facts):
                continue
            used = False
            for row in store.attempts(brief.id, counted_only=True):
                attempts += 1
                if attempts > MAX_ATTEMPTS:
                    break
                if row.trial.key in keys and row.record.outcome is Outcome.PASSED:
                    values = samples_of(row.record, metric)
                    if values:
                        found.setdefault(row.trial.key, []).append(median(values))
                        used = True
            runs += used
    return run_to_run_noise(list(found.values()), source=f"from {runs} earlier runs of the same code")
