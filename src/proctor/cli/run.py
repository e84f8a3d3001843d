"""`proctor run`: from a spec to a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from proctor.cli.spec_options import SpecRequest, show_spec, takes_spec
from proctor.errors import Exit

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from proctor.cli.gate import Judged
    from proctor.engine.stop import Stop
    from proctor.model.trial import RunStatus
    from proctor.runfolder.read import RunData
    from proctor.runs.running import ReadyRun


@click.command(name="run")
@takes_spec
@click.option(
    "--output-dir", type=click.Path(path_type=Path), help="Folder in which to make the run's folder."
)
@click.option(
    "-v", "--verbose", count=True, help="Print a line per trial; twice: also what agents and tests print."
)
@click.option(
    "--tape",
    metavar="FILE_OR_RUN",
    help="Answer the agents from this tape, or from a run's tapes, and ask no provider.",
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "local", "celery"]),
    help="Where trials execute: in this process, or on workers; auto is on workers where a broker is set.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the run's summary as JSON.")
def command(
    request: SpecRequest,
    output_dir: Path | None,
    verbose: int,
    tape: str | None,
    engine: Literal["auto", "local", "celery"] | None,
    as_json: bool,
) -> int:
    """Run a SPEC file, or tasks without one: proctor run -t tasks/hello -a oracle.

    Ctrl-C once finishes what runs and saves; twice stops now and still saves. With a server ('proctor login')
    the run is executed there, its tasks are uploaded, and Ctrl-C ends only the showing.

    Exit code 0: every trial was judged or measured; an agent that fails a task is a result. 1: a gate says
    regression, or an author has something to repair (an experiment that raises, an invalid task, a verifier
    that breaks). 3: a gate is inconclusive. 4: trials were lost to the infrastructure or a provider. 130:
    interrupted. With gates the gate decides; otherwise 1 comes before 4.
    """
    from dataclasses import replace

    from proctor.cli.remote import find_server
    from proctor.runs.process_resources import Resources
    from proctor.runs.running import create
    from proctor.verdicts.gate.rules import read_rules

    spec = request.spec()
    if engine:
        spec = replace(spec, engine=engine)
    if spec.gates:
        # A rule with a slip in it is told before the hours that the run may take.
        read_rules(spec.gates, file=str(request.spec_file or ""))
    if output_dir:
        spec = replace(spec, output_dir=str(output_dir))
    if tape:
        spec = replace(spec, tape=tape)
    if request.print_spec:
        show_spec(spec)
        return Exit.OK
    settings, client = find_server()
    if client:
        from proctor.cli.remote_run import submit

        if request.suites:
            raise click.UsageError("a suite runs where its project is; unset the server to run it here")
        return submit(spec, client, settings, verbose=verbose, as_json=as_json)
    with sharing_setups(request), Resources(settings) as resources:
        job = create(spec, request.written(spec), resources)
        code = carry_out(job, verbose=verbose, as_json=as_json)
    return code or (Exit.WORSE if request.suites and "not loaded: " in spec.notes else Exit.OK)


def sharing_setups(request: SpecRequest) -> AbstractContextManager[None]:
    """Where the processes of an asv suite share what `setup_cache` made."""
    from contextlib import nullcontext

    if not request.asv_paths:
        return nullcontext()
    from proctor.runs.suites import cache_of_setup

    return cache_of_setup()


def bring_to_end(
    job: ReadyRun,
    *,
    verbose: int,
    quiet: bool,
    done: int = 0,
    wait: bool = False,
    stop: Stop | None = None,
) -> RunStatus:
    """Execute a job with a live display and with signals heard; `stop` then says why it ended early."""
    import asyncio

    from proctor.cli.live import Live
    from proctor.cli.live_tasks import TaskLive
    from proctor.engine.stop import Stop
    from proctor.model.run import HOST_ROOT
    from proctor.quantity import plural
    from proctor.render.labels import apart
    from proctor.runs.running import execute

    asked = stop or Stop()
    shown: Live | TaskLive
    if job.spec.tasks:
        shown = TaskLive(job.plan.trials, done=done, verbose=verbose, quiet=quiet)
    else:
        names = apart([trial.label for trial in job.plan.trials]).own
        labels = {trial.key: name for trial, name in zip(job.plan.trials, names, strict=True)}
        shown = Live(len(job.plan), done=done, verbose=bool(verbose), quiet=quiet, labels=labels)
    with shown as live:

        def heard(requests: int) -> None:
            live.say(
                f"{asked.reason}; no more trials begin, those that run are finished"
                if requests == 1 and asked.reason
                else "stopping after the running trials; press Ctrl-C again to stop now"
                if requests == 1
                else "stopping now; finished trials are saved"
            )

        asked.on_request = heard

        async def go() -> RunStatus:
            with asked.on_signals():
                streams = live.logged if isinstance(live, TaskLive) and verbose > 1 and not quiet else None
                return await execute(job, listener=live, stop=asked, on_log=streams, wait=wait)

        if job.info.host_root:
            live.say(HOST_ROOT)
        live.say(f"run {job.info.id}: {job.spec.name}, {plural(len(job.plan), 'trial')}")
        for warning in job.plan.warnings:
            live.say(f"note: {warning}")
        return asyncio.run(go())


def carry_out(job: ReadyRun, *, verbose: int, as_json: bool, done: int = 0, wait: bool = False) -> int:
    """Execute a job with everything a terminal needs around it; the exit code."""
    from proctor.engine.stop import Stop
    from proctor.runfolder.read import RunData

    if job.info.race:
        from proctor.cli.outputs import Outputs
        from proctor.cli.race import carry_out_race

        return carry_out_race(job, Outputs(), verbose=verbose, as_json=as_json, done=done, wait=wait)
    stop = Stop()
    status = bring_to_end(job, verbose=verbose, quiet=as_json, done=done, wait=wait, stop=stop)
    data = RunData.from_folder(job.folder)
    report = str(job.folder / "report.html")
    from proctor.cli.gate import gate_run, judged_here

    def judge() -> Judged | None:
        found = gate_run(data, job.spec.gates, job.resources)
        return judged_here(found) if found else None

    return conclude(data, status, judge, report=report, reason=stop.reason, as_json=as_json)


def conclude(
    data: RunData,
    status: RunStatus,
    judge: Callable[[], Judged | None],
    *,
    report: str,
    reason: str,
    as_json: bool,
) -> int:
    """Say what a run came to, what its gates say of it, and how to go on; the exit code."""
    import sys

    from proctor.cli.table import print_document, print_json
    from proctor.model.trial import RunStatus
    from proctor.verdicts.run.summary import summary

    if not as_json:
        from proctor.render.results.run import brief

        print_document(brief(data))
        print(f"report: {report}")
    judged = judge() if status is RunStatus.DONE else None
    if as_json:
        print_json(summary(data) | ({"gate": judged.data} if judged else {}))
    elif judged:
        print()
        print_document(judged.document)
    if status is RunStatus.CANCELLED:
        print(f"run {data.info.id} was cancelled; finished trials are saved", file=sys.stderr)
        return Exit.INTERRUPTED
    if status is not RunStatus.DONE:
        print(how_to_go_on(data.info.id, reason), file=sys.stderr)
        return Exit.INTERRUPTED
    return judged.exit_code if judged else exit_code(data)


def how_to_go_on(run_id: str, reason: str) -> str:
    """What to do after an interruption, or when a budget is spent."""
    if not reason:
        return f"interrupted; continue with: proctor resume {run_id}"
    return (
        f"stopped: {reason}. Finished trials are saved. With a larger budget (for the run --budget-usd, "
        f"--budget-tokens or --budget-requests) continue with: proctor resume {run_id}"
    )


def exit_code(data: RunData) -> Exit:
    """What the outcomes of a run mean to a shell: `errors.EXIT_MEANING`, in the order of `EXIT_ORDER`."""
    from proctor.model.outcome import Blame, Outcome
    from proctor.verdicts.run.survey import survey

    blames = {outcome.blame for outcome in survey(data).outcomes if outcome is not Outcome.PASSED}
    # An agent that fails is a result; an experiment that does was not measured.
    to_repair = {Blame.TASK, Blame.AUTHOR} | ({Blame.AGENT} if data.info.kind == "experiment" else set())
    if blames & to_repair:
        return Exit.WORSE
    if blames & {Blame.INFRASTRUCTURE, Blame.PROVIDER}:
        return Exit.INFRASTRUCTURE
    return Exit.OK
