"""`proctor run`: from a spec to a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proctor.errors import Exit

if TYPE_CHECKING:
    from proctor.job.running import Job
    from proctor.model.trial import RunStatus
    from proctor.report.data import RunData


@click.command(name="run")
@click.argument("spec_file", metavar="SPEC", type=click.Path(path_type=Path))
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change the spec: iterations.measured=20."
)
@click.option(
    "--experiments",
    "sources",
    multiple=True,
    metavar="DIR_OR_MODULE",
    help="Where more experiments are found.",
)
@click.option("--parallel", type=click.IntRange(1), help="Trials at a time; timings are then contended.")
@click.option("--output-dir", type=click.Path(path_type=Path), help="Where the run folder goes.")
@click.option("-v", "--verbose", count=True, help="A line per trial; twice: everything.")
@click.option("--json", "as_json", is_flag=True, help="Print the run's summary as JSON.")
def command(
    spec_file: Path,
    overrides: tuple[str, ...],
    sources: tuple[str, ...],
    parallel: int | None,
    output_dir: Path | None,
    verbose: int,
    as_json: bool,
) -> int:
    """Run SPEC. Ctrl-C once finishes what runs and saves; twice stops now and still saves.

    Exit code 0: every trial ended well; 1: some failed; 4: only the infrastructure did; 130: interrupted,
    `proctor resume` goes on. With `gates` in the spec the code is the gate's: 0 pass, 1 regression,
    3 inconclusive, 4 infrastructure.
    """
    from dataclasses import replace

    from proctor.job.planning import with_sources
    from proctor.job.running import create
    from proctor.report.gate.rules import read_rules
    from proctor.settings import load_settings
    from proctor.spec.load import load, written

    spec = with_sources(load(spec_file, overrides=overrides), sources)
    if spec.gates:
        # A rule with a slip in it is told before the hours that the run may take.
        read_rules(spec.gates, file=str(spec_file))
    if parallel:
        spec = replace(spec, parallel=parallel)
    if output_dir:
        spec = replace(spec, output_dir=str(output_dir))
    job = create(spec, written(spec_file), load_settings())
    return carry_out(job, verbose=verbose, as_json=as_json)


def bring_to_end(job: Job, *, verbose: int, quiet: bool, done: int = 0) -> RunStatus:
    """Execute a job with a live display and with signals heard."""
    import asyncio

    from proctor.cli.live import Live
    from proctor.cli.live_tasks import TaskLive
    from proctor.engine.stop import Stop
    from proctor.job.running import execute

    shown: Live | TaskLive
    if job.spec.tasks:
        shown = TaskLive(job.plan.trials, done=done, verbose=verbose, quiet=quiet)
    else:
        shown = Live(len(job.plan), done=done, verbose=bool(verbose), quiet=quiet)
    with shown as live:

        def heard(requests: int) -> None:
            live.say(
                "stopping: what runs is finished and saved; once more to stop now"
                if requests == 1
                else "stopping now; everything that ended is saved"
            )

        async def go() -> RunStatus:
            stop = Stop(heard)
            with stop.on_signals():
                streams = live.logged if isinstance(live, TaskLive) and verbose > 1 and not quiet else None
                return await execute(job, listener=live, stop=stop, on_log=streams)

        live.say(f"run {job.info.id}: {job.spec.name}, {len(job.plan)} trials")
        for warning in job.plan.warnings:
            live.say(f"note: {warning}")
        return asyncio.run(go())


def carry_out(job: Job, *, verbose: int, as_json: bool, done: int = 0) -> int:
    """Execute a job with everything a terminal needs around it; the exit code."""
    import sys

    from proctor.cli.gate import gate_run, show
    from proctor.cli.table import print_json
    from proctor.model.trial import RunStatus
    from proctor.report.data import RunData
    from proctor.report.folder import summary
    from proctor.report.gate.output.document import to_mapping

    status = bring_to_end(job, verbose=verbose, quiet=as_json, done=done)
    data = RunData.from_folder(job.folder)
    if not as_json:
        print_result(data)
        print(f"\nreport: {job.folder / 'report.html'}")
    judged = gate_run(data, job.spec.gates, job.settings) if status is RunStatus.DONE else None
    if as_json:
        print_json(summary(data) | ({"gate": to_mapping(judged)} if judged else {}))
    elif judged:
        print()
        show(judged)
    if status is RunStatus.CANCELLED:
        print(f"run {job.info.id} was cancelled; what had ended is saved", file=sys.stderr)
        return Exit.INTERRUPTED
    if status is RunStatus.INTERRUPTED:
        print(f"interrupted; go on with: proctor resume {job.info.id}", file=sys.stderr)
        return Exit.INTERRUPTED
    return judged.exit_code if judged else exit_code(data)


def exit_code(data: RunData) -> Exit:
    """What the outcomes of a run mean to a shell."""
    from proctor.model.outcome import Blame, Outcome

    outcomes = [trial.outcome for trial in data.trials if trial.outcome]
    blames = {outcome.blame for outcome in outcomes if outcome is not Outcome.PASSED}
    bad = {Blame.TASK, Blame.AUTHOR} | ({Blame.AGENT} if data.info.kind == "experiment" else set())
    if blames & bad:
        return Exit.WORSE
    if blames & {Blame.INFRASTRUCTURE, Blame.PROVIDER}:
        return Exit.INFRASTRUCTURE
    return Exit.OK


def print_result(data: RunData, *, limit: int = 30) -> None:
    """The table at the end: one row per parameter point; the matrix and the scores of rollouts."""
    from proctor.cli.table import print_table, seconds

    if data.info.kind == "task":
        from proctor.cli.rollouts_text import print_rollouts

        print_rollouts(data)
        return
    rows: list[list[Any]] = []
    for trial in data.trials[:limit]:
        metrics = trial.counted.metrics if trial.counted else {}
        duration = metrics.get("duration_s", {})
        rows.append(
            [
                trial.planned.label,
                trial.outcome or "pending",
                duration.get("count", 0),
                *(seconds(duration.get(name)) for name in ("p50", "mean", "p95", "max")),
            ]
        )
    print_table(["trial", "outcome", "n", "median", "mean", "p95", "max"], rows, right=(2, 3, 4, 5, 6))
    if len(data.trials) > limit:
        print(f"… and {len(data.trials) - limit} more; see the report")
