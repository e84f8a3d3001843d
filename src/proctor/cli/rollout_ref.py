"""Find the run of rollouts that a user names: its name, and perhaps the stamp of one of several."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from proctor.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from proctor.model.run import RunInfo
    from proctor.settings import Settings
    from proctor.store.store import Store


def check(latest: bool, rollout: str | None) -> None:
    """Both together contradict each other."""
    if latest and rollout:
        raise UsageError("--latest and --rollout name different runs; give one of them")


def find_run(store: Store, name: str, rollout: str | None) -> RunInfo:
    """The newest run of that name, or the one with that stamp. An id or a folder will do as a name."""
    if rollout is None:
        return store.run(name)
    run = next((run for run in _of_name(store, name) if _has_stamp(run, rollout)), None)
    if run is None:
        stamps = ", ".join(run.id for run in store.runs(name=name, limit=5))
        known = f"; it has {stamps}" if stamps else f"; no run named '{name}', see 'proctor ls'"
        raise NotFoundError(f"'{name}' has no rollout '{rollout}'{known}")
    return store.run(run.id)


def _of_name(store: Store, name: str) -> list[RunInfo]:
    found: list[RunInfo] = []
    page = store.runs(name=name, limit=200)
    while page:
        found += page
        page = store.runs(name=name, limit=200, before=page[-1].id)
    return found


def _has_stamp(run: RunInfo, stamp: str) -> bool:
    return run.id.startswith(stamp) or Path(run.folder).name == stamp


def find_folder(settings: Settings, name: str, rollout: str | None) -> Path | None:
    """The folder of a run that the store does not know: copied here, or made with another store."""
    from proctor.model.place import safe_name

    if rollout is None and (Path(name) / "manifest.json").is_file():
        return Path(name)
    base = settings.rollouts_dir / safe_name(name)
    if not base.is_dir():
        return None
    folders = sorted(each for each in base.iterdir() if (each / "manifest.json").is_file())
    wanted = [each for each in folders if rollout is None or each.name.startswith(rollout)]
    return wanted[-1] if wanted else None
