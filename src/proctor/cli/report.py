"""`proctor report`: write a run's reports again, from the store or from its folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from proctor.cli.outputs import Outputs, takes_document
from proctor.cli.reading import undisturbed
from proctor.cli.spec_options import takes_sources
from proctor.errors import Exit, UsageError

if TYPE_CHECKING:
    from proctor.runfolder.read import RunData


@click.command(name="report")
@click.argument("ref", metavar="RUN")
@click.option(
    "--format",
    "formats",
    multiple=True,
    metavar="NAME",
    help="html, md, json or a custom report; may be repeated.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write to this folder instead of the run's own.",
)
@takes_document
@takes_sources
@click.option("--open/--no-open", "show", default=False, help="Open the page in a browser afterwards.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written, and the summary, as JSON.")
@undisturbed
def command(
    ref: str,
    formats: tuple[str, ...],
    output: Path | None,
    sources: tuple[str, ...],
    show: bool,
    as_json: bool,
    outputs: Outputs,
) -> int:
    """Write the reports of RUN: its id, a unique beginning of it, its name, `latest`, or its folder.

    Without --format every report is written, custom ones included: those of installed packages and those
    that the experiment modules of the run register. Exit code 1: a report failed.
    """
    from proctor.cli.table import print_json
    from proctor.render.reporters import write_reports
    from proctor.runfolder.files import make_folder
    from proctor.verdicts.run.summary import summary

    data, folder = find(ref, output)
    load_reporters(data, sources)
    make_folder(folder)
    before = _files(folder)
    failures = write_reports(data, folder, formats or None)
    if any(outputs):
        from proctor.render.results.run import run_document

        outputs.write(run_document(data))
    written = sorted(name for name, seen in _files(folder).items() if before.get(name) != seen)
    if as_json:
        print_json(
            {
                "folder": str(folder),
                "written": written,
                "failures": [{"name": each.name, "error": each.error} for each in failures],
                "summary": summary(data),
            }
        )
    else:
        for name in written:
            print(folder / name)
    if show and (folder / "report.html").is_file():
        click.launch(str(folder / "report.html"))
    return Exit.WORSE if failures else Exit.OK


def load_reporters(data: RunData, sources: tuple[str, ...]) -> None:
    """Import the modules in which a run's own reporters are; one that is gone costs its reports only."""
    from proctor.runs.planning import experiment_sources
    from proctor.settings import load_settings
    from proctor.spec.load import from_mapping

    own = experiment_sources(from_mapping(data.info.resolved)) if data.info.resolved.get("sources") else ()
    if not (own or sources or load_settings().experiments):
        return
    from proctor.experiments.discover import discover

    there = [each for each in own if Path(each).exists() or each.isidentifier()]
    for each in discover((*there, *sources)).broken:
        print(f"proctor: not loaded: {each.error}", file=sys.stderr)


def find(ref: str, output: Path | None) -> tuple[RunData, Path]:
    """The run, and where its reports go."""
    from proctor.runfolder.read import RunData

    path = Path(ref)
    if (path / "manifest.json").is_file():
        return RunData.from_folder(path), output or path
    from proctor.settings import load_settings
    from proctor.store.open import open_store

    with open_store(load_settings().store_url) as store:
        data = RunData.from_store(store, ref)
    folder = output or Path(data.info.folder)
    if not output and not (data.info.folder and folder.is_dir()):
        raise UsageError(
            f"run {data.info.id}: its folder {data.info.folder or 'was never written'} does not exist; "
            f"give --output DIR, or 'proctor export {data.info.id}' for all of it"
        )
    return data, folder


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        path.name: (path.stat().st_mtime_ns, path.stat().st_ino)
        for path in folder.iterdir()
        if path.is_file()
    }
