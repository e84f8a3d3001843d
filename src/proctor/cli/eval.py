"""`proctor eval`: grade stored workspaces again, or let a judge score them, without running any agent."""

from __future__ import annotations

import click


@click.command(name="eval")
@click.argument("name", metavar="NAME", default="latest")
@click.option("--latest", is_flag=True, help="Take the newest run of that name (the default).")
@click.option(
    "--rollout",
    metavar="STAMP",
    help="Take the run with this stamp: its folder's name or the beginning of its id.",
)
@click.option(
    "--judge",
    metavar="[MODEL]",
    is_flag=False,
    flag_value="",
    help="Let a judge score the stored work, without agents and tests: MODEL, or the judge of the spec.",
)
@click.option("--votes", type=click.IntRange(1, 99), help="With --judge: how often it is asked per trial.")
@click.option(
    "--budget-usd", type=click.FloatRange(0), help="With --judge: the most that its calls may cost."
)
@click.option("-v", "--verbose", count=True, help="Print a line per trial; twice: also what the tests print.")
@click.option("--json", "as_json", is_flag=True, help="Print the new run's summary as JSON.")
def command(
    name: str,
    latest: bool,
    rollout: str | None,
    judge: str | None,
    votes: int | None,
    budget_usd: float | None,
    verbose: int,
    as_json: bool,
) -> int:
    """Grade the rollouts of NAME again with the tasks' tests as they are now.

    The workspaces that the agents left are put into new sandboxes and judged. The result is a new run called
    NAME.eval; the first one stays as it is. Trials without a stored workspace are skipped, with the reason.

    With --judge neither agents nor tests run: a model reads what the agents left and scores it by rubrics, in
    a new run called NAME.judged. Rewards stay as they were unless the spec gives them to the judge.

    Exit code 0: every trial was judged or measured; an agent that fails a task is a result. 1: a gate says
    regression, or an author has something to repair (an experiment that raises, an invalid task, a verifier
    that breaks). 3: a gate is inconclusive. 4: trials were lost to the infrastructure or a provider. 130:
    interrupted. With gates the gate decides; otherwise 1 comes before 4.
    """
    from proctor.cli.run import carry_out
    from proctor.cli.summarize import check, find_run
    from proctor.errors import UsageError
    from proctor.runs.judging import create_judging
    from proctor.runs.process_resources import Resources
    from proctor.runs.regrade import create_regrade
    from proctor.settings import load_settings
    from proctor.store.open import open_store

    check(latest, rollout)
    if judge is None and (votes or budget_usd is not None):
        raise UsageError("--votes and --budget-usd are about a judge: add --judge")
    settings = load_settings()
    with open_store(settings.store_url, create=False) as store:
        run_id = find_run(store, name, rollout).id
    with Resources(settings) as resources:
        if judge is None:
            ready = create_regrade(run_id, resources)
        else:
            ready = create_judging(run_id, resources, judge, {"votes": votes, "budget_usd": budget_usd})
        return carry_out(ready, verbose=verbose, as_json=as_json)
