"""`proctor resume`: finish an interrupted run; what is missing is executed, on request also what was lost."""

from __future__ import annotations

import click


@click.command(name="resume")
@click.argument("run", default="latest")
@click.option(
    "--errors",
    is_flag=True,
    help="Also repeat trials that were lost to infrastructure or a provider; the lost attempts are kept.",
)
@click.option(
    "--wait", is_flag=True, help="If another process executes the run, wait and go on when it ends or dies."
)
@click.option(
    "--budget-usd", type=click.FloatRange(0), help="What the run may spend on models in all, in dollars."
)
@click.option("--budget-tokens", type=click.IntRange(0), help="How many tokens the run may use in all.")
@click.option(
    "--budget-requests", type=click.IntRange(0), help="How many calls of models the run may make in all."
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "local", "celery"]),
    default="auto",
    show_default=True,
    help="Where trials execute: in this process, or on workers; auto is on workers where a broker is set.",
)
@click.option("-v", "--verbose", count=True, help="Print a line per trial.")
@click.option("--json", "as_json", is_flag=True, help="Print the run's summary as JSON.")
def command(
    run: str,
    errors: bool,
    wait: bool,
    engine: str,
    verbose: int,
    as_json: bool,
    **budgets: float | None,
) -> int:
    """Finish RUN (an id, a name or 'latest') after an interruption or a crash: only what is missing runs.

    It goes on with the tasks, experiments and overrides that were stored when it was created, also where the
    project has changed since or is not there.

    A run that was cancelled is refused with exit code 2; without --wait also one that another process
    executes now.

    Exit code 0: every trial was judged or measured; an agent that fails a task is a result. 1: a gate says
    regression, or an author has something to repair (an experiment that raises, an invalid task, a verifier
    that breaks). 3: a gate is inconclusive. 4: trials were lost to the infrastructure or a provider. 130:
    interrupted. With gates the gate decides; otherwise 1 comes before 4.
    """
    from proctor.cli.remote import find_server
    from proctor.cli.run import carry_out
    from proctor.runs.coordinator import unfinished
    from proctor.runs.process_resources import Resources
    from proctor.runs.running import reopen, with_budgets

    settings, client = find_server()
    if wait and errors:
        raise click.UsageError("--errors changes the run, so it cannot --wait for another process to end")
    if client:
        from proctor.cli.remote_run import follow

        if wait:
            raise click.UsageError("--wait is for runs of this machine; a server's runs go on by themselves")
        known = client.run(run)
        going = client.resume(known["id"], errors=errors, **budgets)
        return follow(client, going, verbose=verbose, as_json=as_json, after=int(known["last_event"]))
    with Resources(settings) as resources:
        job = with_budgets(reopen(run, resources, wait=wait, engine=engine), budgets)
        with resources.stores.borrow() as store:
            lost = store.reopen_lost(job.info.id) if errors else 0
            missing = unfinished(store, job.info.id)
        if lost and not as_json:
            print(f"run {job.info.id}: {lost} lost {'trial is' if lost == 1 else 'trials are'} run again")
        if not missing and not as_json:
            print(f"run {job.info.id} is complete: nothing is missing")
        return carry_out(job, verbose=verbose, as_json=as_json, done=len(job.plan) - missing, wait=wait)
