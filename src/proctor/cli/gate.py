"""`proctor gate`: judge a run by rules, alone or against a baseline, for people and for CI."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from proctor.cli.outputs import Outputs, takes_page
from proctor.cli.reading import undisturbed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proctor.model.document import Document, Section
    from proctor.model.run import RunInfo
    from proctor.runfolder.read import RunData
    from proctor.runs.process_resources import Resources
    from proctor.verdicts.compare.judge import Comparison
    from proctor.verdicts.compare.results import ResultSet
    from proctor.verdicts.gate.inputs import GateInput
    from proctor.verdicts.gate.rules import RuleSet
    from proctor.verdicts.gate.verdict import GateResult

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(name="gate")
@click.argument("ref", metavar="RUN")
@click.option(
    "--baseline",
    metavar="NAME_OR_RUN",
    help="What to compare with: a pinned baseline, a run or a run folder.",
)
@click.option("--rules", "rules_file", type=_FILE, help="File of rules. [the gates of the spec]")
@click.option("--baselines", "baselines_file", type=_FILE, help="File of pinned baselines.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.option("--junit", "junit_file", type=_FILE, help="Also write JUnit XML to this file.")
@click.option(
    "--markdown", "comment_file", type=_FILE, help="Also write a pull-request comment to this file."
)
@takes_page
@click.option("--github", is_flag=True, help="Also print GitHub annotations.")
@click.option("--step-summary", is_flag=True, help="Also append to $GITHUB_STEP_SUMMARY.")
@click.option("--fields", is_flag=True, help="List the fields that rules may name, and exit.")
@click.option("--seed", default=0, show_default=True, help="Seed of the resampling.")
@undisturbed
def command(
    ref: str,
    baseline: str | None,
    rules_file: Path | None,
    baselines_file: Path | None,
    as_json: bool,
    junit_file: Path | None,
    comment_file: Path | None,
    github: bool,
    step_summary: bool,
    fields: bool,
    seed: int,
    outputs: Outputs,
) -> int:
    """Judge RUN: an id, a name, 'latest', a run folder, or a summary file.

    Exit code: 0 pass, 1 regression, 2 bad input, 3 inconclusive, 4 infrastructure. The first of
    regression, infrastructure, inconclusive that a rule has is the verdict; all must hold for a pass.
    """
    from proctor.settings import load_settings
    from proctor.store.open import StorePool
    from proctor.verdicts.gate.open import (
        comparison_behind,
        judge,
        open_baseline,
        open_input,
        run_info,
        whole_input,
    )

    settings = load_settings()
    with StorePool(settings.store_url, create=False) as stores:
        if fields:
            return _print_fields(whole_input(ref, stores))
        info = run_info(ref, stores)
        rules = _rules(info, rules_file)
        run = open_input(ref, rules, stores)
        name = info.name if info else ""
        pinned = baselines_file or settings.baselines
        before = open_baseline(rules, stores, pinned, named=baseline, name=name)
        found = judge(run, rules, before, stores, seed=seed)
        behind = comparison_behind(run, rules, before, stores, seed=seed) if any(outputs) else None
    if info:
        keep(found, info)
    sides = (before.run.results if before.run else None, run.results)
    if any(outputs):
        outputs.write(_document(found, sides, outputs, behind, seed=seed))
    _write(found, junit_file, comment_file, step_summary=step_summary)
    show(found, None if as_json else _document(found, sides, outputs), github=github)
    outputs.say(quiet=as_json)
    return int(found.exit_code)


class Judged(NamedTuple):
    """What the gates of a run say of it: as data, for people, and to a shell."""

    data: Mapping[str, Any]
    document: Document
    exit_code: int


def gate_run(data: RunData, gates: Sequence[Any], resources: Resources) -> GateResult | None:
    """Judge a run that has just ended by the gates of its own spec, if it has any."""
    if not gates:
        return None
    from proctor.runs.gating import judge_run

    found = judge_run(data, gates, resources)
    if found:
        keep(found, data.info)
    return found


def judged_here(found: GateResult) -> Judged:
    """The verdict on a run of this machine."""
    from proctor.render.results.gate import gate

    return Judged(found.to_dict(), _headed(gate(found)), int(found.exit_code))


def judged_elsewhere(found: Mapping[str, Any]) -> Judged:
    """The verdict that a server came to, as it keeps it: it is the one that counts."""
    from proctor.render.results.gate import kept_gate

    return Judged(found, _headed(kept_gate(found)), int(found["exit_code"]))


def _headed(document: Document) -> Document:
    from dataclasses import replace

    return replace(document, headline=f"Gate: {document.headline}")


def _document(
    found: GateResult,
    sides: tuple[ResultSet | None, ResultSet],
    outputs: Outputs,
    behind: Comparison | None = None,
    *,
    seed: int = 0,
) -> Document:
    """The verdict and its rules; for a page also the comparison behind them."""
    from proctor.render.results.cells import run_link
    from proctor.render.results.gate import gate

    folder, (before, run) = outputs.folder, sides
    evidence: tuple[Section, ...] = ()
    if behind and before:
        from proctor.render.results import compare

        evidence = compare.evidence(behind, before, run, folder=folder, seed=seed)
    return gate(
        found,
        run=run_link(run, folder),
        baseline=run_link(before, folder, found.baseline) if before else "",
        evidence=evidence,
        folder=folder,
    )


def keep(found: GateResult, info: RunInfo) -> None:
    """Put the verdict into the run's folder and its page, when they are there and can be written."""
    import sys

    from proctor.runs.gating import keep_verdict

    if note := keep_verdict(found, info):
        print(f"note: {note}", file=sys.stderr)


def show(found: GateResult, document: Document | None, *, github: bool = False) -> None:
    """Print the document, or without one JSON; then annotations go to standard error: GitHub reads both."""
    import sys

    from proctor.cli.table import print_document, print_json, printable
    from proctor.render.ci import workflow_commands

    if document:
        print_document(_headed(document))
    else:
        print_json(found.to_dict())
    if github:
        for line in workflow_commands(found):
            print(printable(line), file=sys.stdout if document else sys.stderr)


def _write(
    found: GateResult, junit_file: Path | None, comment_file: Path | None, *, step_summary: bool
) -> None:
    """The files of CI servers. A comment is read far from here: it has no links to files."""
    import os

    from proctor.errors import UsageError
    from proctor.render.ci import comment, junit
    from proctor.render.results.gate import gate
    from proctor.runfolder.files import make_folder, write_atomic, write_error

    if junit_file:
        make_folder(junit_file.parent)
        write_atomic(junit_file, junit(found))
    if comment_file:
        make_folder(comment_file.parent)
        write_atomic(comment_file, comment(gate(found)))
    if step_summary:
        place = os.environ.get("GITHUB_STEP_SUMMARY")
        if not place:
            raise UsageError("--step-summary: GITHUB_STEP_SUMMARY is not set; only GitHub's runners set it")
        try:
            with Path(place).open("a", encoding="utf-8", errors="replace") as stream:
                stream.write(comment(gate(found)) + "\n")
        except OSError as error:
            raise write_error(Path(place), error) from error


def _rules(info: RunInfo | None, rules_file: Path | None) -> RuleSet:
    from proctor.errors import UsageError
    from proctor.verdicts.gate.rules import load_rules, read_rules

    if rules_file:
        return load_rules(rules_file)
    gates = info.resolved.get("gates") if info else None
    if not isinstance(gates, list | tuple) or not gates:
        what = f"the spec of run {info.id} has no gates" if info else "a summary file has no rules"
        raise UsageError(f"{what}; give --rules FILE with lines such as '- failure_count == 0'")
    return read_rules(gates)


def _print_fields(run: GateInput) -> int:
    from proctor.cli.table import print_table, printable
    from proctor.errors import Exit
    from proctor.verdicts.gate.thresholds import known_fields

    rows = [(printable(path), printable(value)) for path, value in known_fields(run)]
    print_table(("field", "value"), rows, wrap=(1,))
    return Exit.OK
