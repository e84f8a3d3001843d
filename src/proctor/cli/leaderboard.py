"""`proctor leaderboard RUN…`: rank the agents of stored runs, with ties where the order is not known."""

from __future__ import annotations

import click

from proctor.cli.outputs import Outputs, takes_outputs
from proctor.cli.reading import undisturbed
from proctor.errors import Exit


@click.command(name="leaderboard")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option(
    "--these-tasks/--tasks-like-these",
    default=None,
    help="What places claim something about. [tasks like these; with too few tasks for that, these tasks]",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the resampling.")
@takes_outputs
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@undisturbed
def command(
    runs: tuple[str, ...], these_tasks: bool | None, seed: int, as_json: bool, outputs: Outputs
) -> int:
    """Rank every agent and model of the stored runs RUN: ids, names or 'latest'.

    Each two are compared on the tasks that both did; all pairs are corrected together. A place is a range
    where the order is not known. Exit code 2: bad input.
    """
    from proctor.settings import load_settings
    from proctor.store.open import open_store
    from proctor.verdicts.leaderboard.collect import collect
    from proctor.verdicts.leaderboard.rank import rank

    with open_store(load_settings().store_url, create=False) as store:
        infos = [store.run(ref) for ref in runs]
        entrants, warnings = collect(store, [info.id for info in infos])
    board = rank(entrants, these_tasks=these_tasks, warnings=warnings, seed=seed)
    if any(outputs) or not as_json:
        from proctor.render.results.cells import address
        from proctor.render.results.leaderboard import leaderboard

        folders = {info.id: info.folder for info in infos}
        found = leaderboard(
            board,
            link=lambda run: address(folders[run], "report.html", outputs.folder),
            folder=outputs.folder,
        )
        outputs.show(found, quiet=as_json)
    if as_json:
        from proctor.cli.table import print_json
        from proctor.render.results.leaderboard import to_mapping

        print_json(to_mapping(board))
    return Exit.OK
