"""Open one side of a comparison: a run folder, a result file of Proctor or another tool, or a stored run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from proctor.analysis.times import Noise
from proctor.runfolder.read import RunData
from proctor.settings import Settings
from proctor.store.open import open_store
from proctor.verdicts.compare.by_task import with_spent
from proctor.verdicts.compare.foreign import read_file
from proctor.verdicts.compare.history import noise_from_store
from proctor.verdicts.compare.judge import Comparison, compare, is_time
from proctor.verdicts.compare.results import ResultSet, from_run
from proctor.verdicts.compare.stored import from_store


def open_side(
    ref: str, settings: Settings, metrics: tuple[str, ...] = (), also: tuple[str, ...] = ()
) -> ResultSet:
    """A run folder, a result file, or a run in the store, in that order; `also` is read of rollouts."""
    path = Path(ref)
    if path.is_dir() and (path / "manifest.json").is_file():
        data = RunData.from_folder(path)
        found = from_run(data, with_spent(data.info, metrics, also), source="folder")
        return replace(found, folder=str(path))
    if path.is_file():
        return read_file(path, metrics)
    with open_store(settings.store_url, create=False) as store:
        info = store.run(ref)
        return from_store(store, info.id, with_spent(info, metrics, also))


def usual_noise(a: ResultSet, b: ResultSet, metrics: tuple[str, ...], settings: Settings) -> dict[str, Noise]:
    """How much each metric moves from run to run, where earlier runs of the same code tell."""
    times = [metric for metric in metrics if is_time(metric)]
    if not times:
        return {}
    with open_store(settings.store_url, create=False) as store:
        found = {metric: noise_from_store(store, a, b, metric) for metric in times}
    return {metric: noise for metric, noise in found.items() if noise}


def compare_refs(
    refs: tuple[str, str],
    settings: Settings,
    *,
    metrics: tuple[str, ...] = (),
    also: tuple[str, ...] = (),
    margin: float | None = None,
    higher_is_better: bool | None = None,
    these_tasks: bool | None = None,
    seed: int = 0,
) -> tuple[Comparison, ResultSet, ResultSet]:
    """Open both sides and judge the second against the first, knowing how much such runs usually differ."""
    a, b = (open_side(ref, settings, metrics, also) for ref in refs)
    wanted = metrics or (a.metric,)
    noise = usual_noise(a, b, wanted, settings)
    found = compare(
        a,
        b,
        metrics=wanted,
        margin=margin,
        higher_is_better=higher_is_better,
        noise=noise,
        these_tasks=these_tasks,
        seed=seed,
    )
    return found, a, b
