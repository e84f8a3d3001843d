"""`proctor tasks`: look after task folders: check them, pack them."""

from __future__ import annotations

from pathlib import Path

import click

from proctor.errors import Exit, TaskError, UsageError


@click.group("tasks")
def command() -> None:
    """Check and pack task folders."""


@command.command("check")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(folder: Path, strict: bool, as_json: bool) -> int:
    """Check the task in DIR, or every task of a folder of tasks. Exit code 2: something must be mended.

    Besides what the files say it looks whether the oracle has passed and nop has failed here before.
    """
    from dataclasses import asdict

    from proctor.cli.table import bold, print_json, printable
    from proctor.tasks.lint import check_folders

    reports = check_folders(folder, proofs=_proofs)
    bad = any(report.errors or (strict and report.findings) for report in reports)
    if as_json:
        print_json(
            [
                {
                    "task": report.name,
                    "path": str(report.path),
                    "ok": not report.errors,
                    "findings": [asdict(finding) for finding in report.findings],
                }
                for report in reports
            ]
        )
        return Exit.USAGE if bad else Exit.OK
    for report in reports:
        state = "must be mended" if report.errors else "warnings" if report.findings else "fine"
        print(f"{bold(printable(report.name))}: {state}")
        for finding in report.findings:
            hint = f"; {finding.hint}" if finding.hint else ""
            print(f"  {finding.level:<7} {printable(f'{finding.place}: {finding.message}{hint}')}")
    errors = sum(len(report.errors) for report in reports)
    warnings = sum(len(report.findings) for report in reports) - errors
    counts = ((len(reports), "task"), (errors, "error"), (warnings, "warning"))
    print(", ".join(f"{count} {noun}{'s' * (count != 1)}" for count, noun in counts))
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
        raise UsageError(f"{archive} would lie inside the task; choose a place outside {folder}")
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


def _proofs(name: str, digest: str) -> dict[str, set[str]]:
    """Agent → the outcomes it had on exactly this task, as the store here knows."""
    from proctor.settings import load_settings
    from proctor.store.open import open_store

    with open_store(load_settings().store_url, create=False) as store:
        found: dict[str, set[str]] = {}
        for trial, outcome in store.recent(name):
            if trial.subject_digest == digest and trial.agent:
                found.setdefault(trial.agent, set()).add(outcome.value)
    return found
