"""`proctor resume`: finish an interrupted run; only what is missing is executed."""

from __future__ import annotations

import click


@click.command(name="resume")
@click.argument("run", default="latest")
@click.option("-v", "--verbose", count=True, help="A line per trial.")
@click.option("--json", "as_json", is_flag=True, help="Print the run's summary as JSON.")
def command(run: str, verbose: int, as_json: bool) -> int:
    """Go on with RUN (id, name or `latest`) after an interruption, a crash or kill -9."""
    from proctor.cli.run import carry_out
    from proctor.job.running import reopen, unfinished
    from proctor.settings import load_settings
    from proctor.store.open import open_store

    settings = load_settings()
    job = reopen(run, settings)
    with open_store(settings.store_url) as store:
        missing = unfinished(store, job.info.id)
    if not missing and not as_json:
        print(f"run {job.info.id} is complete: nothing is missing")
    return carry_out(job, verbose=verbose, as_json=as_json, done=len(job.plan) - missing)
