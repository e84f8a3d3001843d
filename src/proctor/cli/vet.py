"""`proctor vet`: test tasks before they are used, and write a certificate for each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from proctor.cli.outputs import Outputs, takes_document
from proctor.cli.spec_options import takes_datasets, takes_host_root, takes_network, takes_pass_env

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proctor.model.task import Network
    from proctor.model.vetting import Check
    from proctor.runs.process_resources import Resources
    from proctor.runs.running import ReadyRun
    from proctor.runs.vet.planning import VetRequest
    from proctor.verdicts.vet.certificate import TaskCertificate

FOLDER = "certificates"


@click.command(name="vet")
@click.argument("paths", metavar="[TASK_OR_DATASET]...", nargs=-1)
@click.option("-t", "--tasks", multiple=True, metavar="PATH", help="The same as an argument.")
@takes_datasets
@click.option(
    "--rollouts",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    help="Number of trials of the author's solution, and of doing nothing.",
)
@click.option(
    "--repeats",
    type=click.IntRange(1, 1000),
    default=2,
    show_default=True,
    help="Number of trials of each disturbance.",
)
@click.option(
    "--only",
    metavar="CHECK,...",
    help="Run only these checks: oracle, nop, one_cpu, network_off, clock, time_zone, loaded.",
)
@click.option("--sandbox", default="auto", show_default=True, help="Sandbox back end.")
@click.option(
    "--parallel", type=click.IntRange(1, 1024), help="Number of trials at a time. [the number of CPUs]"
)
@takes_host_root
@takes_network
@takes_pass_env
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the certificates. [the run's folder]",
)
@takes_document
@click.option(
    "-v", "--verbose", count=True, help="Print a line per trial; twice: also what agents and tests print."
)
@click.option("--json", "as_json", is_flag=True, help="Print the certificates as JSON.")
def command(
    paths: tuple[str, ...],
    tasks: tuple[str, ...],
    datasets: tuple[str, ...],
    rollouts: int,
    repeats: int,
    only: str | None,
    sandbox: str,
    host_root: bool,
    network: Network | None,
    parallel: int | None,
    pass_env: tuple[str, ...],
    out: Path | None,
    verbose: int,
    as_json: bool,
    outputs: Outputs,
) -> int:
    """Vet tasks: folders, datasets or ZIPs. The run id of an interrupted vetting finishes that one.

    The author's solution must always pass, also on one CPU, without network, 400 days ahead, in another time
    zone and on a busy machine; doing nothing must never pass. Exit code: 0 all are sound, 1 some are not,
    2 bad input, 4 infrastructure left something open, 130 interrupted.
    """
    import sys

    from proctor.cli.run import bring_to_end
    from proctor.errors import Exit
    from proctor.model.trial import RunStatus
    from proctor.processes import allowed_cpus
    from proctor.runs.process_resources import Resources
    from proctor.runs.vet.certificates import certificates_of
    from proctor.runs.vet.planning import VetRequest
    from proctor.settings import load_settings

    if not (paths or tasks or datasets):
        raise click.UsageError("nothing to vet: give tasks, for example: proctor vet tasks/hello")
    settings = load_settings()
    request = VetRequest(
        paths=(*paths, *tasks),
        datasets=datasets,
        rollouts=rollouts,
        repeats=repeats,
        parallel=parallel or len(allowed_cpus()),
        sandbox=sandbox,
        host_root=host_root,
        network=network,
        checks=chosen(only),
        pass_env=pass_env,
    )
    with Resources(settings) as resources:
        job, done = _job(request, resources)
        if (
            done < len(job.plan)
            and bring_to_end(job, verbose=verbose, quiet=as_json, done=done) is not RunStatus.DONE
        ):
            print(f"interrupted; continue with: proctor vet {job.info.id}", file=sys.stderr)
            return Exit.INTERRUPTED
        found = resources.stores.now(certificates_of, job.info.id)
    return report(found, job.info.id, out or job.folder / FOLDER, outputs, as_json=as_json)


def chosen(only: str | None) -> tuple[Check, ...]:
    """The checks that were asked for, in their usual order."""
    from proctor.errors import UsageError
    from proctor.model.vetting import Check
    from proctor.spec.node import nearest

    if only is None:
        return tuple(Check)
    names = [name.strip().lower().replace("-", "_") for name in only.split(",") if name.strip()]
    for name in names:
        if name not in set(Check):
            raise UsageError(
                f"--only: '{name}' is not a check{nearest(name, [each.value for each in Check])}"
            )
    if not names:
        raise UsageError("--only names no check")
    return tuple(check for check in Check if check in names)


def _job(request: VetRequest, resources: Resources) -> tuple[ReadyRun, int]:
    """A new vetting, or one that exists; and how many of its trials are done."""
    from proctor.errors import NotFoundError, UsageError
    from proctor.model.run import Execution
    from proctor.runs.coordinator import unfinished
    from proctor.runs.running import reopen
    from proctor.runs.vet.planning import create_vetting
    from proctor.store.open import open_store

    ref = request.paths[0] if request.paths else ""
    if len(request.paths) != 1 or request.datasets or Path(ref).exists():
        return create_vetting(request, resources), 0
    try:
        with open_store(resources.settings.store_url, create=False) as store:
            info = store.run(ref)
            missing = unfinished(store, info.id)
    except NotFoundError:
        return create_vetting(request, resources), 0
    if info.execution is not Execution.VET:
        raise UsageError(f"{ref}: no such task; run {info.id} of that name was not made by 'proctor vet'")
    job = reopen(info.id, resources)
    return job, len(job.plan) - missing


def report(
    found: Sequence[TaskCertificate], run_id: str, folder: Path, outputs: Outputs, *, as_json: bool
) -> int:
    """Write the certificates and print them; the exit code."""
    from datetime import UTC, datetime

    from proctor.cli.table import print_json
    from proctor.model.place import safe_name
    from proctor.render.results.vet import certificates
    from proctor.runfolder.files import make_folder, write_json
    from proctor.verdicts.vet.certificate import exit_code
    from proctor.verdicts.vet.document import summary

    made_at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    data = summary(found, run_id=run_id, made_at=made_at)
    make_folder(folder)
    for each in data["certificates"]:
        write_json(folder / f"{safe_name(each['task'].replace('/', '__'))}.json", each)
    files = outputs._replace(html_file=folder / "index.html", markdown_file=folder / "README.md")
    files.show(certificates(found, run_id=run_id, folder=folder), quiet=as_json)
    if as_json:
        print_json(data)
    return exit_code(found)
