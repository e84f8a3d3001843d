"""`proctor eval`: grade stored workspaces again, without running any agent."""

from __future__ import annotations

import click


@click.command(name="eval")
@click.argument("name", metavar="NAME", default="latest")
@click.option("--latest", is_flag=True, help="The newest run of that name; this is the default.")
@click.option(
    "--rollout", metavar="STAMP", help="The run with this stamp: its folder's name, or its beginning."
)
@click.option("-v", "--verbose", count=True, help="A line per trial; twice: what the tests print.")
@click.option("--json", "as_json", is_flag=True, help="Print the new run's summary as JSON.")
def command(name: str, latest: bool, rollout: str | None, verbose: int, as_json: bool) -> int:
    """Grade the rollouts of NAME again with the tasks' tests as they are now.

    The workspaces that the agents left are put into new sandboxes and judged. The result is a new run called
    NAME.eval; the first one stays as it is. Trials without a stored workspace are skipped, with the reason.
    """
    from proctor.cli.rollout_ref import check, find_run
    from proctor.cli.run import carry_out
    from proctor.job.regrade import create_regrade
    from proctor.settings import load_settings
    from proctor.store.open import open_store

    check(latest, rollout)
    settings = load_settings()
    with open_store(settings.store_url, create=False) as store:
        run_id = find_run(store, name, rollout).id
    return carry_out(create_regrade(run_id, settings), verbose=verbose, as_json=as_json)
