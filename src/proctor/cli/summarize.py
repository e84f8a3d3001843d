"""`proctor summarize`: pass rates, matrix and tasks of a run of rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from proctor.cli.reading import undisturbed
from proctor.errors import Exit, NotFoundError, UsageError

if TYPE_CHECKING:
    from proctor.model.run import RunInfo
    from proctor.runfolder.read import RunData
    from proctor.settings import Settings
    from proctor.store.store import Store


@click.command(name="summarize")
@click.argument("name", metavar="NAME", default="latest")
@click.option("--latest", is_flag=True, help="Take the newest run of that name (the default).")
@click.option(
    "--rollout",
    metavar="STAMP",
    help="Take the run with this stamp: its folder's name or the beginning of its id.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@undisturbed
def command(name: str, latest: bool, rollout: str | None, as_json: bool) -> int:
    """Summarize the rollouts of NAME: a run's name, its id, its folder, or 'latest'."""
    from proctor.cli.table import print_json

    check(latest, rollout)
    data = load(name, rollout, brief=not as_json)
    if data.info.kind != "task":
        raise UsageError(f"run {data.info.id} measured experiments; see 'proctor show {data.info.id}'")
    if as_json:
        from proctor.verdicts.run.summary import summary

        print_json({**summary(data), "folder": data.info.folder})
        return Exit.OK
    from proctor.cli.table import bold, print_document, printable
    from proctor.render.results.run import brief

    print(bold(printable(f"{data.info.name}  {data.info.id}  {data.info.status.value}")))
    print_document(brief(data))
    if data.info.folder:
        print(f"\nfolder: {printable(data.info.folder)}")
    return Exit.OK


def load(name: str, rollout: str | None, *, brief: bool = False) -> RunData:
    """The run from the store, in brief if that will do; from its folder when the store does not know it."""
    from proctor.runfolder.read import RunData
    from proctor.settings import load_settings
    from proctor.store.open import open_store

    settings = load_settings()
    with open_store(settings.store_url, create=False) as store:
        try:
            return RunData.from_store(store, find_run(store, name, rollout).id, brief=brief)
        except NotFoundError:
            folder = find_folder(settings, name, rollout)
            if folder is None:
                raise
            return RunData.from_folder(folder)


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
