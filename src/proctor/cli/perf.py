"""`proctor perf`: measure the harness itself on many small episodes, and check its limits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from proctor.cli.outputs import Outputs, takes_document

if TYPE_CHECKING:
    from proctor.engine.base import Listener
    from proctor.model.document import Document
    from proctor.runs.perf.run import PerfResult

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(name="perf")
@click.option(
    "--episodes",
    type=click.IntRange(1, 100_000),
    default=24,
    show_default=True,
    help="Number of episodes to run.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 1024),
    default=4,
    show_default=True,
    help="Number of episodes at a time.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=180.0,
    show_default=True,
    help="Seconds that an agent has for one episode.",
)
@click.option(
    "--output-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("deliverables/perf"),
    show_default=True,
    help="Folder for the perf-* files.",
)
@click.option(
    "--strict-spec", is_flag=True, help="Check every file against its schema, its hash and the other files."
)
@click.option("--compress", is_flag=True, help="Also write everything as one ZIP.")
@click.option("--scenario", type=_FILE, help="Tasks and agents to repeat; YAML, TOML or JSON.")
@click.option("--gate", type=_FILE, help="File of rules, instead of the five built-in ones.")
@click.option("--baseline", type=_FILE, help="An earlier perf-summary-*.json that rules may compare with.")
@click.option(
    "--sandbox", default="auto", show_default=True, help="Sandbox back end; 'fake' executes nothing."
)
@click.option(
    "--host-root",
    is_flag=True,
    help="Use this machine's own system instead of a scenario's images; the built-in scenario always does.",
)
@takes_document
@click.option("-v", "--verbose", is_flag=True, help="Print a line per episode.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary and the verdict as JSON.")
def command(
    episodes: int,
    workers: int,
    timeout: float,
    output_dir: Path,
    strict_spec: bool,
    compress: bool,
    scenario: Path | None,
    gate: Path | None,
    baseline: Path | None,
    sandbox: str,
    host_root: bool,
    verbose: bool,
    as_json: bool,
    outputs: Outputs,
) -> int:
    """Run a scenario of small episodes, write the perf-* files with charts and a page, and judge them.

    Exit code 0: the gate holds; 1: an episode did not end as the scenario expects, a rule broke, or
    --strict-spec found a file that is not as it should be; 4: only the infrastructure failed; 130:
    interrupted or cancelled, and what had ended is written.
    """
    from proctor.runs.perf.run import PerfRequest, run_perf
    from proctor.runs.process_resources import Resources
    from proctor.settings import load_settings

    request = PerfRequest(
        episodes=episodes,
        workers=workers,
        timeout_s=timeout,
        output_dir=output_dir,
        strict_spec=strict_spec,
        compress=compress,
        scenario=scenario,
        gate=gate,
        baseline=baseline,
        sandbox=sandbox,
        host_root=host_root,
    )

    @contextmanager
    def listen() -> Iterator[Listener]:
        from proctor.cli.live import Live

        with Live(episodes, verbose=verbose, quiet=as_json or not verbose) as live:
            yield live

    with Resources(load_settings()) as resources:
        result = run_perf(request, resources, listen=listen)
    page, document = _write_page(result)
    outputs.write(document)
    if as_json:
        _print_json(result, page)
    else:
        from proctor.cli.table import print_document, say

        print_document(document)
        say(f"report: {page}")
    return result.exit_code


def _write_page(result: PerfResult) -> tuple[Path, Document]:
    """The result as a page beside its files, which hold everything that it shows; kept with the run too."""
    from proctor.model.document import to_mapping
    from proctor.model.trial import RunStatus
    from proctor.render.document.html import write
    from proctor.render.results.perf import perf
    from proctor.runfolder.files import read_document, write_json

    named = {path.name.split("-")[1]: path for path in result.files if path.suffix == ".json"}
    folder, manifest = named["manifest"].parent, named["manifest"].name
    metrics, series = (read_document(folder, named[kind].name) for kind in ("metrics", "series"))
    how = "cancelled" if result.status is RunStatus.CANCELLED else "interrupted"
    document = perf(
        result.summary,
        metrics,
        series,
        gate=result.gate,
        problems=result.problems,
        stopped="" if result.gate else how,
        files=result.files,
    )
    page = folder / manifest.replace("perf-manifest-", "perf-report-").replace(".json", ".html")
    write(document, page)
    if result.folder.is_dir():
        write_json(result.folder / "perf.json", to_mapping(document, drawn=True))
    return page, document


def _print_json(result: PerfResult, page: Path) -> None:
    from proctor.cli.table import print_json

    print_json(
        {
            "summary": result.summary,
            "files": [str(path) for path in (*result.files, page)],
            "problems": list(result.problems),
            "gate": result.gate.to_dict() if result.gate else None,
            "status": result.status.value,
        }
    )
