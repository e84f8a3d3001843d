"""`proctor race`: baseline and candidate side by side, until the verdict is reached."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from proctor.cli.outputs import Outputs, takes_outputs
from proctor.cli.quantities import Share
from proctor.cli.spec_options import takes_host_root, takes_network, takes_pass_env

if TYPE_CHECKING:
    from proctor.model.spec import Spec
    from proctor.model.task import Network
    from proctor.runfolder.read import RunData
    from proctor.runs.running import ReadyRun


@click.command(name="race")
@click.argument("baseline")
@click.argument("candidate")
@click.argument("spec_file", metavar="[SPEC]", required=False, type=click.Path(path_type=Path))
@click.option("-n", "--rollouts", type=click.IntRange(1), help="Rollouts of each task and side. [the spec's]")
@click.option(
    "--error",
    type=Share(0.5),
    default="5%",
    show_default=True,
    help="Chance of calling a candidate worse that is not.",
)
@click.option(
    "--margin", type=Share(10, zero=True), default="5%", show_default=True, help="Tolerated loss of score."
)
@click.option(
    "--stop-when-no-worse",
    is_flag=True,
    help="End early also when a loss of more than the margin is excluded; a little less often in the end.",
)
@click.option("--name", metavar="NAME", help="Name of the run. [race-NAME of the spec]")
@click.option("--parallel", type=click.IntRange(1), help="Number of trials at a time.")
@takes_host_root
@takes_network
@takes_pass_env
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a value of SPEC, such as seed=2."
)
@click.option(
    "--output-dir", type=click.Path(path_type=Path), help="Folder in which to make the run's folder."
)
@click.option("-v", "--verbose", count=True, help="Print a line per trial.")
@takes_outputs
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def command(
    baseline: str,
    candidate: str,
    spec_file: Path | None,
    rollouts: int | None,
    error: float,
    margin: float,
    stop_when_no_worse: bool,
    name: str | None,
    parallel: int | None,
    host_root: bool,
    network: Network | None,
    pass_env: tuple[str, ...],
    overrides: tuple[str, ...],
    output_dir: Path | None,
    verbose: int,
    as_json: bool,
    outputs: Outputs,
) -> int:
    """Is CANDIDATE worse than BASELINE on the tasks of SPEC? Run pairs of rollouts until that is known.

    \b
    BASELINE and CANDIDATE are each
      terminal, oracle          an agent, with the model of SPEC
      terminal/openai/gpt-5.2   an agent with a model
      openai/gpt-5.2            a model, with the agent of SPEC
      main.toml                 a spec: its agent, model, options, variables and overrides
      run:ID                    a stored run; only BASELINE
    Put agent:, model:, spec: or run: before a name that could be several. SPEC may be left out when CANDIDATE
    is a spec.

    Exit code: 0 no worse by more than the margin, 1 worse, 2 bad input, 3 inconclusive, 4 infrastructure,
    130 interrupted; 'proctor resume' then goes on to the same verdict.
    """  # noqa: D301 - click wants the character itself
    from dataclasses import replace

    from proctor.runs.planning import with_host_root, with_network, with_pass_env
    from proctor.runs.process_resources import Resources
    from proctor.runs.race.planning import RaceRequest, create_race
    from proctor.settings import load_settings
    from proctor.spec.load import load, written
    from proctor.spec.secrets import hidden

    path = _spec_path(candidate, spec_file)
    spec: Spec = load(path, overrides=overrides, granted=pass_env)
    spec = with_pass_env(spec, pass_env) if pass_env else spec
    if output_dir:
        spec = replace(spec, output_dir=str(output_dir))
    request = RaceRequest(
        baseline=baseline,
        candidate=candidate,
        spec=replace(spec, parallel=parallel) if parallel else spec,
        written=hidden(written(path), spec.secrets),
        rollouts=rollouts,
        error=error,
        margin=margin,
        stop_when_no_worse=stop_when_no_worse,
        granted=pass_env,
        name=name,
        change=tuple(
            [with_host_root] * host_root + ([lambda found: with_network(found, network)] if network else [])
        ),
    )
    with Resources(load_settings()) as resources:
        job = create_race(request, resources)
        return carry_out_race(job, outputs, verbose=verbose, as_json=as_json)


def _spec_path(candidate: str, spec_file: Path | None) -> Path:
    if spec_file:
        return spec_file
    path = Path(candidate.removeprefix("spec:"))
    if not path.is_file():
        raise click.UsageError(
            "SPEC is missing: which tasks? For example: proctor race oracle nop specs/tasks.toml"
        )
    return path


def carry_out_race(
    job: ReadyRun,
    outputs: Outputs,
    *,
    verbose: int,
    as_json: bool,
    done: int = 0,
    wait: bool = False,
) -> int:
    """Execute a race and show what came out; the exit code."""
    import sys

    from proctor.cli.run import bring_to_end, how_to_go_on
    from proctor.engine.stop import Stop
    from proctor.errors import Exit
    from proctor.model.trial import RunStatus
    from proctor.runfolder.read import RunData

    stop = Stop()
    status = bring_to_end(job, verbose=verbose, quiet=as_json, done=done, wait=wait, stop=stop)
    code = show_race(RunData.from_folder(job.folder), outputs, as_json=as_json)
    if not as_json:
        print(f"page: {job.folder / 'race.html'}")
    if status is RunStatus.CANCELLED:
        print(f"run {job.info.id} was cancelled; finished trials are saved", file=sys.stderr)
        return Exit.INTERRUPTED
    if status is RunStatus.INTERRUPTED:
        print(how_to_go_on(job.info.id, stop.reason), file=sys.stderr)
        return Exit.INTERRUPTED
    return code


def show_race(data: RunData, outputs: Outputs, *, as_json: bool) -> int:
    """Write and print a race; the exit code of its verdict."""
    from proctor.cli.table import print_json
    from proctor.render.results.race import race_document
    from proctor.verdicts.race.judge import judge_race

    found = judge_race(data)
    folder = outputs.folder if any(outputs) else None
    outputs.show(race_document(found, data.info, folder=folder), quiet=as_json)
    if as_json:
        print_json(found.to_dict())
    return int(found.exit_code)
