"""`proctor summarize`: pass rates, matrix and tasks of a run of rollouts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from proctor.cli.reading import undisturbed
from proctor.errors import Exit, NotFoundError, UsageError

if TYPE_CHECKING:
    from proctor.runfolder.read import RunData


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
    from proctor.cli.rollout_ref import check
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
    from proctor.cli.rollout_ref import find_folder, find_run
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
