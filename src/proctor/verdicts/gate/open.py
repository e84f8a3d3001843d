"""Open what a gate judges: a run folder, a summary file or a stored run, and its baseline."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from proctor.analysis.times import Noise
from proctor.errors import NotFoundError, UsageError
from proctor.model.outcome import Outcome
from proctor.model.run import RunInfo
from proctor.runfolder.files import encode, read_document
from proctor.runfolder.read import RunData, read_manifest
from proctor.settings import Settings
from proctor.store.open import StorePool
from proctor.store.service.ownership import DEFAULT
from proctor.verdicts.compare.judge import Comparison, compare
from proctor.verdicts.compare.open import usual_noise
from proctor.verdicts.compare.stored import from_store
from proctor.verdicts.gate.baselines import Baseline, missing, read_baselines
from proctor.verdicts.gate.evaluate import clocked, evaluate
from proctor.verdicts.gate.inputs import (
    GateInput,
    Tally,
    count_fields,
    input_of_document,
    input_of_run,
    renamed,
    score_fields,
    with_aliases,
)
from proctor.verdicts.gate.rules import NotWorse, RuleSet, Threshold
from proctor.verdicts.gate.verdict import GateResult

if TYPE_CHECKING:
    from proctor.store.rows import Measured, ResultRow
    from proctor.store.store import Store


class ComparedWith(NamedTuple):
    """The baseline of a run, its name, and where it came from."""

    run: GateInput | None
    label: str
    facts: dict[str, Any]


NOTHING = ComparedWith(None, "", {})


def is_folder(ref: str) -> bool:
    """Whether a run is named by its folder."""
    return Path(ref, "manifest.json").is_file()


@contextmanager
def opened(ref: str, stores: StorePool) -> Iterator[RunData | dict[str, Any]]:
    """A run, or the content of a summary file. A large run streams: use it inside."""
    if is_folder(ref):
        yield RunData.from_folder(Path(ref))
    elif Path(ref).is_file():
        yield read_document(Path(ref).parent, Path(ref).name)
    else:
        with stores.borrow() as store:
            yield RunData.from_store(store, ref)


def whole_input(ref: str, stores: StorePool, rules: RuleSet | None = None) -> GateInput:
    """The values of all metrics, or of those that rules name, with every field."""
    with opened(ref, stores) as found:
        if isinstance(found, dict):
            return input_of_document(found, label=Path(ref).name)
        run = input_of_run(found, rules.metrics if rules else None)
    return replace(run, results=replace(run.results, folder=ref)) if is_folder(ref) else run


def open_input(ref: str, rules: RuleSet, stores: StorePool) -> GateInput:
    """As much of a run as the rules look at."""
    if not is_folder(ref) and not Path(ref).is_file():
        with stores.borrow() as store:
            found = input_from_store(store, ref, rules)
        if found:
            return found
    return whole_input(ref, stores, rules)


def run_info(ref: str, stores: StorePool) -> RunInfo | None:
    """The run without its trials; None for a summary file."""
    if is_folder(ref):
        return read_manifest(Path(ref))[0]
    if Path(ref).is_file():
        return None
    with stores.borrow() as store:
        return store.run(ref)


def open_baseline(
    rules: RuleSet, stores: StorePool, path: Path, *, named: str | None = None, name: str = ""
) -> ComparedWith:
    """The baseline that was named, that the rules name, or that has the run's own name; pinned in `path`."""
    if not rules.needs_baseline and not named:
        return NOTHING
    wanted = named or rules.baseline
    known = read_baselines(path)
    if found := known.get(wanted or name):
        return _pinned(found, path)
    if not wanted:
        return NOTHING
    try:
        run = open_input(wanted, rules, stores)
    except NotFoundError as error:
        raise NotFoundError(f"{missing(wanted, known)} in {path}; {error}") from error
    return _held(run)


def stored_input(store: Store, run_id: str, rules: RuleSet) -> GateInput:
    """As much of a stored run as the rules look at; no file is."""
    return input_from_store(store, run_id, rules) or input_of_run(
        RunData.from_store(store, run_id), rules.metrics
    )


def stored_baseline(
    store: Store, rules: RuleSet, settings: Settings, *, project: str, name: str
) -> ComparedWith:
    """The baseline of a server's run: a run of the project, or of the default project a pinned one.

    Never a file, whatever the rules name: they came through the API.
    """
    if not rules.needs_baseline:
        return NOTHING
    known = read_baselines(settings.baselines) if project == DEFAULT else {}
    if found := known.get(rules.baseline or name):
        return _pinned(found, settings.baselines)
    if not rules.baseline:
        return NOTHING
    run_id = store.service.ownership.find(rules.baseline, project)
    if run_id is None:
        raise NotFoundError(f"the baseline {rules.baseline[:100]!r} is no run of the project '{project}'")
    return _held(stored_input(store, run_id, rules))


def _pinned(found: Baseline, path: Path) -> ComparedWith:
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(found.at))
    label = f"baseline {found.name} ({found.run.label}, pinned {at}: {found.reason})"
    facts = {"name": found.name, "run_id": found.run_id, "digest": found.run.digest, "at": found.at}
    return ComparedWith(found.run, label, {**facts, "reason": found.reason, "file": str(path)})


def _held(run: GateInput) -> ComparedWith:
    return ComparedWith(run, f"run {run.label}", {"run_id": run.results.run_id, "digest": run.digest})


def judge(
    run: GateInput,
    rules: RuleSet,
    baseline: ComparedWith,
    stores: StorePool,
    *,
    seed: int = 0,
    project: str | None = None,
) -> GateResult:
    """The verdict on the run, compared with its baseline; with a `project` only its runs tell the noise."""
    before = baseline.run
    noise = _noise(run, before, rules, stores, project) if before else {}
    found = evaluate(rules, run, before, held_against=baseline.label, noise=noise, seed=seed)
    if before and before.results.run_id and before.results.run_id == run.results.run_id:
        found = replace(found, warnings=("the baseline is this run itself", *found.warnings))
    return replace(found, baseline_facts=baseline.facts)


def comparison_behind(
    run: GateInput,
    rules: RuleSet,
    baseline: ComparedWith,
    stores: StorePool,
    *,
    seed: int = 0,
    project: str | None = None,
) -> Comparison | None:
    """The comparison that the statistical rules rest on; None where there is none."""
    rules, _ = clocked(rules, run, baseline.run)
    margins: dict[str, float] = {}
    for rule in rules.rules:
        if isinstance(rule, NotWorse):
            margins.setdefault("reward" if rule.is_score else rule.metric, rule.margin)
    before = baseline.run
    if not before or not margins:
        return None
    noise = _noise(run, before, rules, stores, project)
    try:
        studies = [
            compare(before.results, run.results, metrics=(metric,), margin=margin, noise=noise, seed=seed)
            for metric, margin in margins.items()
        ]
    except UsageError:
        return None  # nothing in common: the rules have said so already
    scores = next((study.scores for study in studies if study.scores), ())
    return replace(
        studies[0], scores=scores, metrics=tuple(each for study in studies for each in study.metrics)
    )


def _noise(
    run: GateInput, baseline: GateInput, rules: RuleSet, stores: StorePool, project: str | None = None
) -> dict[str, Noise]:
    return usual_noise(baseline.results, run.results, rules.metrics, stores, project=project)


def input_from_store(store: Store, ref: str, rules: RuleSet) -> GateInput | None:
    """The input that these rules need; None when a rule looks at what only a run in memory can tell."""
    info = store.run(ref)
    told = {*count_fields(info, Tally()), "score", "pass_rate", "scores", "pass_rates"}
    paths = [rule.path.partition(".")[0] for rule in rules.rules if isinstance(rule, Threshold)]
    if not told.issuperset(paths):
        return None
    watch = _Watch(info.plan_digest)
    results = renamed(from_store(store, info.id, with_aliases(rules.metrics), watch=watch.look))
    tally = watch.tally
    return GateInput(
        results=results,
        fields={**count_fields(info, tally), **(score_fields(results) if info.kind == "task" else {})},
        reasons=dict(sorted(tally.reasons.items())),
        trials=tally.trials,
        missing=tally.trials - tally.ended,
        broken=tally.broken,
        digest=watch.digest.hexdigest(),
    )


class _Watch:
    """Counts and digests what passes by."""

    def __init__(self, plan_digest: str) -> None:
        self.tally = Tally()
        self.digest = hashlib.sha256(plan_digest.encode())

    def look(self, row: ResultRow) -> None:
        outcome = row.outcome
        self.tally.trials += 1
        line = encode([row.key, None])
        if outcome is not None:
            head = encode([row.key, row.number, outcome.value, row.reward])
            line = f"{head[:-1]},{_as_written(row.measured)}]"
            failure = None if outcome is Outcome.PASSED else row.measured.failure
            kind = failure.type if failure else ""
            took_s = row.ended_at - row.started_at
            self.tally.add(outcome, row.reward, took_s, kind, suspect=row.measured.suspect)
        self.digest.update(line.encode("utf-8", "replace"))


def _as_written(measured: Measured) -> str:
    """The aggregates as a run folder spells them: as the store does, but for escapes."""
    text = bytes(measured.written_metrics).decode()
    return encode(measured.metrics) if "\\" in text else text
