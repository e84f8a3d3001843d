"""`proctor resume`: finish an interrupted run; what is missing is executed, on request also what was lost."""

from __future__ import annotations

import time

import click


@click.command(name="resume")
@click.argument("run", default="latest")
@click.option(
    "--errors",
    is_flag=True,
    help="Also run again what was lost to the infrastructure or a provider; the lost attempts are kept.",
)
@click.option("-v", "--verbose", count=True, help="A line per trial.")
@click.option("--json", "as_json", is_flag=True, help="Print the run's summary as JSON.")
def command(run: str, errors: bool, verbose: int, as_json: bool) -> int:
    """Go on with RUN (id, name or `latest`) after an interruption, a crash or kill -9."""
    from proctor.cli.run import carry_out
    from proctor.job.running import reopen, unfinished
    from proctor.settings import load_settings
    from proctor.store.open import open_store

    settings = load_settings()
    job = reopen(run, settings)
    with open_store(settings.store_url) as store:
        lost = store.reopen_lost(job.info.id, time.time()) if errors else 0
        missing = unfinished(store, job.info.id)
    if lost and not as_json:
        print(f"run {job.info.id}: {lost} lost {'trial is' if lost == 1 else 'trials are'} run again")
    if not missing and not as_json:
        print(f"run {job.info.id} is complete: nothing is missing")
    return carry_out(job, verbose=verbose, as_json=as_json, done=len(job.plan) - missing)
