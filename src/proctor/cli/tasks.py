"""`proctor tasks`: check and pack task folders."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from proctor.errors import Exit, TaskError, UsageError

if TYPE_CHECKING:
    from proctor.store.store import Store


@click.group("tasks")
def command() -> None:
    """Check and pack task folders."""


@command.command("check")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--strict", is_flag=True, help="Treat warnings and missing proofs as errors.")
@click.option("--all", "every", is_flag=True, help="Show every place of a finding that many tasks share.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every finding of every task.")
def check(folder: Path, strict: bool, every: bool, as_json: bool) -> int:
    """Check the task in DIR, or every task below it. Exit code 2: there are errors.

    It works out which files the image of a task holds and compares them with its tests and its solution.
    Besides what the files say it looks whether the oracle has passed and nop has failed here before.
    """
    from dataclasses import asdict

    from proctor.cli.findings import print_findings
    from proctor.cli.table import print_json
    from proctor.runs.image_content import image_content
    from proctor.settings import load_settings
    from proctor.store.open import open_store
    from proctor.tasks.lint.check import check_folders

    settings = load_settings()
    with open_store(settings.store_url, create=False) as store:
        proofs = partial(_proofs, store)
        reports = check_folders(
            folder, proofs=proofs, look_inside=image_content, cache_dir=settings.cache_dir
        )
    if as_json:
        print_json(
            [
                {
                    "task": report.name,
                    "path": str(report.path),
                    "ok": not report.errors,
                    "unproven": list(report.unproven),
                    "findings": [asdict(finding) for finding in report.findings],
                }
                for report in reports
            ]
        )
    else:
        print_findings(reports, folder, every=every)
    bad = any(report.errors or (strict and (report.of("warning") or report.unproven)) for report in reports)
    return Exit.USAGE if bad else Exit.OK


@command.command("pack")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("archive", metavar="ZIP", type=click.Path(path_type=Path))
def pack_command(folder: Path, archive: Path) -> int:
    """Pack the task in DIR as ZIP, the way an upload or a spec's `zip` wants it."""
    from proctor.cli.show import size_text
    from proctor.tasks.archive import pack
    from proctor.tasks.read import read_task

    task = read_task(folder)
    if archive.exists():
        raise UsageError(f"{archive} exists; nothing was written. Choose another name or remove it first")
    if archive.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"{archive} would be inside the task; choose a place outside {folder}")
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        pack(folder, archive)
    except OSError as error:
        archive.unlink(missing_ok=True)
        raise UsageError(f"{archive}: cannot be written: {error.strerror or error}") from error
    except TaskError:
        archive.unlink(missing_ok=True)
        raise
    print(f"packed {task.name}: {archive}, {size_text(archive.stat().st_size)}, digest {task.digest[:12]}")
    return Exit.OK


def _proofs(store: Store, name: str, digest: str) -> dict[str, set[str]]:
    """Agent → the outcomes it had on exactly this task, as the store here knows."""
    found: dict[str, set[str]] = {}
    for trial, outcome in store.recent(name):
        if trial.subject_digest == digest and trial.agent:
            found.setdefault(trial.agent, set()).add(outcome.value)
    return found
