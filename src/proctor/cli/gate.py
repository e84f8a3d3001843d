"""`proctor gate`: judge a run by rules, alone or against a baseline, for people and for CI."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from proctor.cli.reading import undisturbed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proctor.analysis.times import Noise
    from proctor.model.run import RunInfo
    from proctor.runfolder.read import RunData
    from proctor.settings import Settings
    from proctor.verdicts.gate.rules import RuleSet
    from proctor.verdicts.gate.side import Side
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
    "--markdown", "markdown_file", type=_FILE, help="Also write a pull-request comment to this file."
)
@click.option("--html", "html_file", type=_FILE, help="Also write an HTML page to this file.")
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
    markdown_file: Path | None,
    html_file: Path | None,
    github: bool,
    step_summary: bool,
    fields: bool,
    seed: int,
) -> int:
    """Judge RUN: an id, a name, 'latest', a run folder, or a summary file.

    Exit code: 0 pass, 1 regression, 2 bad input, 3 inconclusive, 4 infrastructure. The first of
    regression, infrastructure, inconclusive that a rule has is the verdict; all must hold for a pass.
    """
    from proctor.settings import load_settings

    settings = load_settings()
    if fields:
        return _print_fields(ref, settings)
    info, document = _about(ref, settings)
    rules = _rules(info, rules_file)
    side = _side(ref, document, rules, settings)
    name = info.name if info else ""
    before = hold_against(rules, settings, baseline=baseline, baselines_file=baselines_file, name=name)
    found = judge_against(side, rules, before, settings, seed=seed)
    if info:
        keep(found, info)
    if html_file:
        _write_page(found, rules, side, before.side, html_file, settings, seed=seed)
    _write(found, junit_file, markdown_file, step_summary=step_summary)
    show(found, as_json=as_json, github=github)
    return int(found.exit_code)


def gate_run(data: RunData, gates: Sequence[Any], settings: Settings) -> GateResult | None:
    """Judge a run that has just ended by the gates of its own spec, if it has any."""
    from proctor.verdicts.gate.rules import read_rules
    from proctor.verdicts.gate.side import side_of

    if not gates:
        return None
    rules = read_rules(gates)
    found = judge(side_of(data, rules.metrics), rules, settings, name=data.info.name)
    keep(found, data.info)
    return found


def judge(
    side: Side,
    rules: RuleSet,
    settings: Settings,
    *,
    baseline: str | None = None,
    baselines_file: Path | None = None,
    name: str = "",
    seed: int = 0,
) -> GateResult:
    """The verdict, against the baseline that was named, the rules name, or that has the run's own name."""
    before = hold_against(rules, settings, baseline=baseline, baselines_file=baselines_file, name=name)
    return judge_against(side, rules, before, settings, seed=seed)


class Before(NamedTuple):
    """The baseline of a run, its name, and where it came from."""

    side: Side | None
    label: str
    facts: dict[str, Any]


def hold_against(
    rules: RuleSet,
    settings: Settings,
    *,
    baseline: str | None = None,
    baselines_file: Path | None = None,
    name: str = "",
) -> Before:
    """The baseline that was named, that the rules name, or that has the run's own name."""
    if not rules.needs_baseline and not baseline:
        return Before(None, "", {})
    path = baselines_file or settings.baselines
    return Before(*_baseline(baseline or rules.baseline, name, rules, path, settings))


def judge_against(
    side: Side, rules: RuleSet, before: Before, settings: Settings, *, seed: int = 0
) -> GateResult:
    """The verdict on the run, compared with its baseline."""
    from dataclasses import replace

    from proctor.verdicts.gate.evaluate import evaluate

    noise = _noise(side, before.side, rules, settings) if before.side else {}
    found = evaluate(rules, side, before.side, held_against=before.label, noise=noise, seed=seed)
    if before.side and before.side.results.run_id and before.side.results.run_id == side.results.run_id:
        found = replace(found, warnings=("the baseline is this run itself", *found.warnings))
    return replace(found, baseline_facts=before.facts)


def _write_page(
    found: GateResult,
    rules: RuleSet,
    side: Side,
    before: Side | None,
    path: Path,
    settings: Settings,
    *,
    seed: int,
) -> None:
    """The verdict with the comparison behind it, where there is one."""
    from dataclasses import replace

    from proctor.errors import UsageError
    from proctor.render.compare.page import sections
    from proctor.render.gate.page import render
    from proctor.runfolder.files import make_folder, write_atomic
    from proctor.verdicts.compare.judge import compare
    from proctor.verdicts.gate.rules import NotWorse

    margins: dict[str, float] = {}
    for rule in rules.rules:
        if isinstance(rule, NotWorse):
            margins.setdefault("reward" if rule.is_score else rule.metric, rule.margin)
    evidence = ""
    if before and margins:
        a, b = before.results, side.results
        noise = _noise(side, before, rules, settings)
        try:
            studies = [
                compare(a, b, metrics=(metric,), margin=margin, noise=noise, seed=seed)
                for metric, margin in margins.items()
            ]
        except UsageError:
            studies = []  # nothing in common: the rules have said so already
        if studies:
            score = next((study.score for study in studies if study.score), None)
            metrics = tuple(each for study in studies for each in study.metrics)
            evidence = sections(replace(studies[0], score=score, metrics=metrics), a, b, seed=seed)
    make_folder(path.parent)
    write_atomic(path, render(found, rules.rules, evidence))


def keep(found: GateResult, info: RunInfo) -> None:
    """Put the verdict into the run's folder and its page, when they are there and can be written."""
    import sys

    from proctor.errors import StoreError
    from proctor.render.gate.document import to_mapping
    from proctor.render.results.run import put_gate
    from proctor.runfolder.files import write_json

    folder = Path(info.folder) if info.folder else None
    if folder is None or not (folder / "manifest.json").is_file():
        return
    try:
        write_json(folder / "gate.json", to_mapping(found))
        put_gate(info, folder)
    except StoreError as error:
        print(f"note: the verdict could not be saved in the run's folder: {error}", file=sys.stderr)


def show(found: GateResult, *, as_json: bool = False, github: bool = False) -> None:
    """Print the verdict. Beside JSON, annotations go to standard error: GitHub reads both."""
    import sys

    from proctor.cli.table import print_json, printable, say
    from proctor.render.document.terminal import clean
    from proctor.render.gate.document import to_mapping
    from proctor.render.gate.github import workflow_commands
    from proctor.render.gate.text import lines

    if as_json:
        print_json(to_mapping(found))
    else:
        first, *rest = lines(found)
        say(clean(f"Gate: {first}"), heading=True)
        for line in rest:
            say(clean(line), indent="  ")
    if github:
        for line in workflow_commands(found):
            print(printable(line), file=sys.stderr if as_json else sys.stdout)


def _write(
    found: GateResult, junit_file: Path | None, markdown_file: Path | None, *, step_summary: bool
) -> None:
    import os

    from proctor.errors import UsageError
    from proctor.render.gate.junit import junit
    from proctor.render.gate.markdown import markdown
    from proctor.runfolder.files import make_folder, write_atomic, write_error

    for path, render in ((junit_file, junit), (markdown_file, markdown)):
        if path:
            make_folder(path.parent)
            write_atomic(path, render(found))
    if step_summary:
        place = os.environ.get("GITHUB_STEP_SUMMARY")
        if not place:
            raise UsageError("--step-summary: GITHUB_STEP_SUMMARY is not set; only GitHub's runners set it")
        try:
            with Path(place).open("a", encoding="utf-8", errors="replace") as stream:
                stream.write(markdown(found) + "\n")
        except OSError as error:
            raise write_error(Path(place), error) from error


@contextmanager
def opened(ref: str, settings: Settings) -> Iterator[tuple[RunData | None, dict[str, Any] | None]]:
    """A run folder, a summary file, or a run in the store. A large run streams: use it inside."""
    from proctor.runfolder.files import read_document
    from proctor.runfolder.read import RunData
    from proctor.store.open import open_store

    path = Path(ref)
    if path.is_dir() and (path / "manifest.json").is_file():
        yield RunData.from_folder(path), None
    elif path.is_file():
        yield None, read_document(path.parent, path.name)
    else:
        with open_store(settings.store_url, create=False) as store:
            yield RunData.from_store(store, ref), None


def _about(ref: str, settings: Settings) -> tuple[RunInfo | None, dict[str, Any] | None]:
    """The run without its trials, or the summary file."""
    from proctor.runfolder.files import read_document
    from proctor.runfolder.read import read_manifest
    from proctor.store.open import open_store

    path = Path(ref)
    if path.is_dir() and (path / "manifest.json").is_file():
        return read_manifest(path)[0], None
    if path.is_file():
        return None, read_document(path.parent, path.name)
    with open_store(settings.store_url, create=False) as store:
        return store.run(ref), None


def _side(ref: str, document: dict[str, Any] | None, rules: RuleSet, settings: Settings) -> Side:
    """As much of a run as the rules look at."""
    from proctor.store.open import open_store
    from proctor.verdicts.gate.side import side_of, side_of_document
    from proctor.verdicts.gate.stored import side_from_store

    if document is not None:
        return side_of_document(document, label=Path(ref).name)
    if not (Path(ref) / "manifest.json").is_file():
        with open_store(settings.store_url, create=False) as store:
            found = side_from_store(store, ref, rules)
        if found:
            return found
    with opened(ref, settings) as (data, _):
        assert data is not None
        return side_of(data, rules.metrics)


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


def _baseline(
    wanted: str, name: str, rules: RuleSet, path: Path, settings: Settings
) -> tuple[Side | None, str, dict[str, Any]]:
    """The side to hold against, what to call it, and where it came from."""
    from proctor.errors import NotFoundError
    from proctor.quantity import moment
    from proctor.verdicts.gate.baselines import missing, read_baselines

    known = read_baselines(path)
    chosen = wanted or name
    if chosen in known:
        found = known[chosen]
        label = f"baseline {found.name} ({found.side.label}, pinned {moment(found.at)}: {found.reason})"
        facts = {"name": found.name, "run_id": found.run_id, "digest": found.side.digest, "at": found.at}
        return found.side, label, {**facts, "reason": found.reason, "file": str(path)}
    if not wanted:
        return None, "", {}
    try:
        document = _about(wanted, settings)[1]
        side = _side(wanted, document, rules, settings)
    except NotFoundError as error:
        raise NotFoundError(f"{missing(wanted, known)} in {path}; {error}") from error
    return side, f"run {side.label}", {"run_id": side.results.run_id, "digest": side.digest}


def _noise(side: Side, before: Side, rules: RuleSet, settings: Settings) -> dict[str, Noise]:
    """What this store knows of the run-to-run noise of the metrics that tick."""
    from proctor.store.open import open_store
    from proctor.verdicts.compare.history import noise_from_store
    from proctor.verdicts.compare.judge import is_time

    metrics = [metric for metric in rules.metrics if is_time(metric)]
    if not metrics:
        return {}
    with open_store(settings.store_url, create=False) as store:
        found = {metric: noise_from_store(store, before.results, side.results, metric) for metric in metrics}
    return {metric: noise for metric, noise in found.items() if noise}


def _print_fields(ref: str, settings: Settings) -> int:
    from proctor.cli.table import print_table, printable
    from proctor.errors import Exit
    from proctor.verdicts.gate.side import side_of, side_of_document
    from proctor.verdicts.gate.thresholds import known_fields

    with opened(ref, settings) as (data, document):
        side = side_of(data) if data else side_of_document(document or {}, label=ref)
    rows = [(printable(path), printable(value)) for path, value in known_fields(side)]
    print_table(("field", "value"), rows, wrap=(1,))
    return Exit.OK
