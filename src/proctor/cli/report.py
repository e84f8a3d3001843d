"""`proctor report`: write a run's reports again, from the store or from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from proctor.cli.reading import undisturbed
from proctor.errors import Exit, UsageError

if TYPE_CHECKING:
    from proctor.report.data import RunData


@click.command(name="report")
@click.argument("ref", metavar="RUN")
@click.option(
    "--format",
    "formats",
    multiple=True,
    metavar="NAME",
    help="html, md, json or a custom one; again for more.",
)
@click.option(
    "--output", type=click.Path(path_type=Path, file_okay=False), help="Write here, not in the run's folder."
)
@click.option("--open/--no-open", "show", default=False, help="Show the page in a browser afterwards.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written, and the summary, as JSON.")
@undisturbed
def command(ref: str, formats: tuple[str, ...], output: Path | None, show: bool, as_json: bool) -> int:
    """Write the reports of RUN: its id, a unique beginning of it, its name, `latest`, or its folder.

    Without --format every report is written, custom ones included. Exit code 1: a reporter failed.
    """
    from proctor.cli.table import print_json
    from proctor.report.files import make_folder
    from proctor.report.reporters import write_reports
    from proctor.report.summary import summary

    data, folder = find(ref, output)
    make_folder(folder)
    before = _files(folder)
    failures = write_reports(data, folder, formats or None)
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


def find(ref: str, output: Path | None) -> tuple[RunData, Path]:
    """The run, and where its reports go."""
    from proctor.report.data import RunData

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
            f"run {data.info.id}: its folder {data.info.folder or 'was never written'} is not here; "
            f"give --output DIR, or 'proctor export {data.info.id}' for all of it"
        )
    return data, folder


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        path.name: (path.stat().st_mtime_ns, path.stat().st_ino)
        for path in folder.iterdir()
        if path.is_file()
    }
