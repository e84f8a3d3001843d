"""`proctor replay`: run agents again with their models' recorded answers, and without any provider."""

from __future__ import annotations

import click


@click.command(name="replay")
@click.argument("ref", metavar="RUN", default="latest")
@click.argument("trial", metavar="[TRIAL]", required=False)
@click.option("--recorded-speed", is_flag=True, help="Answer as slowly as the models did. [at once]")
@click.option("-v", "--verbose", count=True, help="Print a line per trial; twice: also what agents print.")
@click.option("--json", "as_json", is_flag=True, help="Print the new run's summary as JSON.")
def command(ref: str, trial: str | None, recorded_speed: bool, verbose: int, as_json: bool) -> int:
    """Run the agents of RUN again, or that of one TRIAL, answered from the tapes of their model calls.

    The agents, the sandboxes and the tests are real; only the models' answers come from the tape, which the
    gateway kept of every attempt. Nothing is called and nothing is spent. The result is a new run called
    NAME.replay. The first request that is not on the tape ends the trial, with its step and the difference.
    To repeat recorded shell commands without the agent there is the agent named replay.

    TRIAL is an index, the beginning of a key, or task/agent#rollout, as for 'proctor logs'.

    Exit code 0: every trial came to the reward that it had. 1: one did not, or left its tape. 2: there is no
    tape. 4: trials were lost to the infrastructure. 130: interrupted.
    """
    import sys

    from proctor.cli.logs import find
    from proctor.cli.run import carry_out
    from proctor.errors import Exit
    from proctor.runfolder.read import RunData
    from proctor.runs.process_resources import Resources
    from proctor.runs.replay import create_replay, repeated
    from proctor.settings import load_settings
    from proctor.store.open import open_store

    settings = load_settings()
    with open_store(settings.store_url, create=False) as store:
        run_id = store.run(ref).id
        picked = find(list(store.planned(run_id)), trial) if trial else None
    with Resources(settings) as resources:
        job = create_replay(run_id, resources, trial=picked, recorded_speed=recorded_speed)
        code = carry_out(job, verbose=verbose, as_json=as_json)
        found = resources.stores.now(repeated, run_id, RunData.from_folder(job.folder))
    for each in found:
        if each.divergence:
            print(f"{each.label}: {each.divergence}", file=sys.stderr)
        elif not each.same:
            print(f"{each.label}: reward {each.after} in place of {each.before}", file=sys.stderr)
    same = sum(each.same for each in found)
    if not as_json:
        print(f"{same} of {len(found)} as in run {run_id}; no provider was asked")
    if code in {Exit.OK, Exit.WORSE}:
        return Exit.OK if same == len(found) else Exit.WORSE
    return code
