"""`proctor aa`: the noise certificate of a suite, from a run of it or by running it first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proctor.cli.outputs import Outputs, takes_document
from proctor.cli.quantities import Share

if TYPE_CHECKING:
    from proctor.model.spec import Spec
    from proctor.settings import Settings
    from proctor.verdicts.aa.certificate import NoiseCertificate

_SPECS = {".yaml", ".yml", ".toml", ".json"}


@click.command(name="aa")
@click.argument("ref", metavar="RUN|SPEC")
@click.option(
    "--rollouts",
    type=click.IntRange(1, 1000),
    help="Rollouts per task and side to certify; with SPEC also how many to run. [as many as the run has]",
)
@click.option(
    "--margin",
    type=Share(),
    metavar="3pp|5%",
    help="Loss that the gate tolerates. [3pp for scores, 5% for times]",
)
@click.option(
    "--these-tasks/--tasks-like-these",
    default=None,
    help="What to claim something about. [tasks like these; with too few tasks for that, these tasks]",
)
@click.option(
    "--simulations",
    type=click.IntRange(100, 100_000),
    default=1000,
    show_default=True,
    help="Number of identical pairs to judge, of each kind.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the resampling.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write the certificate here: .json, .md or .html.",
)
@takes_document
@click.option("-v", "--verbose", count=True, help="With SPEC: print a line per trial.")
def command(
    ref: str,
    rollouts: int | None,
    margin: float | None,
    these_tasks: bool | None,
    simulations: int,
    seed: int,
    as_json: bool,
    out: Path | None,
    verbose: int,
    outputs: Outputs,
) -> int:
    """Certify the noise of RUN (id, name, 'latest', a run folder), or of SPEC, which is run first.

    Identical sides are made of the run's own results and judged by the gate, many times. Exit code: 0 false
    alarms are compatible with 5 % or less and changes of five margins are detected (good), 1 too many false
    alarms (noisy), 2 bad input, 3 only larger changes are detected (quiet but blind) or too little data to
    certify, 4 only infrastructure failed, 130 interrupted.
    """
    from proctor.cli.table import print_json
    from proctor.render.results.aa import certificate
    from proctor.runfolder.files import make_folder, write_json
    from proctor.settings import load_settings
    from proctor.store.open import StorePool
    from proctor.verdicts.aa.open import certify
    from proctor.verdicts.aa.scores import Asked

    settings = load_settings()
    files = _outputs(out, outputs)
    asked = Asked(
        rollouts=rollouts,
        margin=margin,
        these_tasks=these_tasks,
        simulations=simulations,
        seed=seed,
    )
    folder = Path(ref)
    if folder.suffix.lower() in _SPECS and not folder.is_dir():
        run_id = _run(folder, rollouts, settings, verbose=verbose, quiet=as_json)
        if run_id is None:
            from proctor.errors import Exit

            return Exit.INTERRUPTED
        ref = run_id
    with StorePool(settings.store_url, create=False) as stores:
        found = certify(ref, asked, stores)
    files.show(certificate(found), quiet=as_json)
    data = _data(found)
    if out and out not in files:
        make_folder(out.parent)
        write_json(out, data)
    if as_json:
        print_json(data)
    elif out and out not in files:
        print(f"\nwritten: {out}")
    return int(found.exit_code)


def _run(file: Path, rollouts: int | None, settings: Settings, *, verbose: int, quiet: bool) -> str | None:
    """Run a spec as `proctor run` does; its id, or None when a person stopped it."""
    import sys

    from proctor.cli.run import bring_to_end
    from proctor.model.trial import RunStatus
    from proctor.runs.process_resources import Resources
    from proctor.runs.running import create
    from proctor.spec.load import load, written

    spec = _repeated(load(file), rollouts)
    with Resources(settings) as resources:
        job = create(spec, written(file), resources)
        if bring_to_end(job, verbose=verbose, quiet=quiet) is RunStatus.DONE:
            return job.info.id
    print(
        f"interrupted; continue with: proctor resume {job.info.id}, then proctor aa {job.info.id}",
        file=sys.stderr,
    )
    return None


def _repeated(spec: Spec, rollouts: int | None) -> Spec:
    """The spec with the rollouts that were asked for; too few are refused before anything is spent."""
    from dataclasses import replace

    from proctor.errors import UsageError

    if spec.kind == "experiment":
        if rollouts is not None:
            raise UsageError(
                "--rollouts is for tasks; an experiment has iterations, which are set in its spec"
            )
        return spec
    if rollouts is not None:
        spec = replace(spec, tasks=tuple(replace(entry, rollouts=rollouts) for entry in spec.tasks))
    if max(entry.rollouts for entry in spec.tasks) < 2:
        raise UsageError(f"{spec.name}: one rollout per task cannot show random variation; use --rollouts 5")
    return spec


def _outputs(out: Path | None, outputs: Outputs) -> Outputs:
    """Where to write; a name that tells no form is refused before any work."""
    from proctor.errors import UsageError

    form = {".html": "html_file", ".md": "markdown_file"}.get(out.suffix.lower()) if out else None
    if form:
        return outputs._replace(**{form: out})
    if out and out.suffix.lower() != ".json":
        raise UsageError(f"--out {out}: its name must end in .json, .md or .html")
    return outputs


def _data(found: NoiseCertificate) -> dict[str, Any]:
    from datetime import UTC, datetime

    from proctor.runs.versions import versions
    from proctor.verdicts.aa.document import to_mapping

    return to_mapping(found, made_at=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", versions=versions())
