"""Judge a run by its rules. Pure: the same rules, run, baseline and seed give the same verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from proctor.analysis.clock import CPU, WALL, HeadlineClock, clock_sentence
from proctor.analysis.p_values import holm
from proctor.analysis.times import Noise
from proctor.model.outcome import Blame, Outcome
from proctor.quantity import plural, some
from proctor.verdicts.compare.clock import shared_clock
from proctor.verdicts.compare.facts import differences
from proctor.verdicts.compare.pairing import without_changed
from proctor.verdicts.gate.inputs import GateInput, is_broken
from proctor.verdicts.gate.ratios import ratio_study
from proctor.verdicts.gate.rules import (
    TIME,
    NotWorse,
    Reasons,
    Rule,
    RuleSet,
    Threshold,
    Written,
    needs_baseline,
)
from proctor.verdicts.gate.score_thresholds import judge_scores
from proctor.verdicts.gate.statistical import Study, score_study, settle
from proctor.verdicts.gate.thresholds import judge_reasons, judge_threshold
from proctor.verdicts.gate.verdict import GateResult, GateVerdict, RuleResult, overall


def evaluate(
    rules: RuleSet,
    run: GateInput,
    baseline: GateInput | None = None,
    *,
    held_against: str = "",
    noise: Mapping[str, Noise] | None = None,
    seed: int = 0,
) -> GateResult:
    """Every rule's verdict, and the gate's. `held_against` is what the baseline is called."""
    rules, clock = clocked(rules, run, baseline)
    same_run, same_baseline, changed = comparable(run, baseline)
    studies: dict[int, Study] = {}
    judged: dict[int, RuleResult] = {}
    for at, rule in enumerate(rules.rules):
        if needs_baseline(rule) and baseline is None:
            judged[at] = _without_baseline(rule)
        elif isinstance(rule, NotWorse):
            assert same_baseline is not None
            if rule.is_score:
                studies[at] = score_study(rule, same_run, same_baseline, seed=seed)
            else:
                studies[at] = ratio_study(rule, same_run, same_baseline, noise=noise or {}, seed=seed)
        elif needs_baseline(rule):
            judged[at] = _plain(rule, same_run, same_baseline)
        else:
            judged[at] = _plain(rule, run, baseline)
    adjusted = iter(holm([each.p_value for study in studies.values() for each in study.effects]))
    comparisons = 0
    for at, study in studies.items():
        own = [next(adjusted) for _ in study.effects]
        comparisons += len(own)
        judged[at] = settle(study, own)
    results = [judged[at] for at in range(len(rules.rules))]
    return GateResult(
        results=(*results, *_implied(rules, run, baseline)),
        label=run.label,
        run_id=run.results.run_id,
        digest=run.digest,
        baseline=held_against or (baseline.label if baseline else ""),
        comparisons=comparisons,
        warnings=(*filter(None, (clock, changed)), *_warnings(run, baseline)),
    )


def comparable(run: GateInput, baseline: GateInput | None) -> tuple[GateInput, GateInput | None, str]:
    """Run and baseline without the tasks whose content changed, and a sentence that names those."""
    if baseline is None:
        return run, None, ""
    before, after, changed = without_changed(baseline.results, run.results)
    if not changed:
        return run, baseline, ""
    have = "has" if len(changed) == 1 else "have"
    return (
        replace(run, results=after),
        replace(baseline, results=before),
        (
            f"{plural(len(changed), 'task')} {have} other content than in the baseline, left out of "
            f"comparisons with it until one with the new content is pinned: {some(changed, 5)}"
        ),
    )


def clocked(rules: RuleSet, run: GateInput, baseline: GateInput | None) -> tuple[RuleSet, str]:
    """The rules with 'time' on the clock that leads for run and baseline, and a sentence on which and why.

    A rule that names a clock is judged by that one; where the other would lead, the sentence says so.
    """
    if baseline is None:
        return rules, ""
    named = {rule.metric for rule in rules.rules if isinstance(rule, NotWorse)}
    sides = baseline.results, run.results
    if TIME in named:
        clock = shared_clock(*sides) or HeadlineClock()
        return rules.on_clock(clock.metric), clock_sentence(clock)
    other = shared_clock(*sides, with_cpu=True) if WALL in named else None
    if other and other.metric == CPU:
        return rules, f"a rule names {WALL}; 'time' would be judged by {CPU}: {other.why}"
    return rules, ""


def _plain(rule: Threshold | Reasons, run: GateInput, baseline: GateInput | None) -> RuleResult:
    if isinstance(rule, Threshold) and rule.is_score and run.results.arms:
        return judge_scores(rule, run, baseline)
    if isinstance(rule, Threshold):
        return judge_threshold(rule, run, baseline)
    return judge_reasons(rule, run, baseline)


def _without_baseline(rule: Rule) -> RuleResult:
    return RuleResult(
        written=rule.written,
        verdict=GateVerdict.INCONCLUSIVE,
        sentence="there is no baseline to compare with.",
        change="pin one: proctor baseline pin NAME RUN --reason '…'",
    )


def _implied(rules: RuleSet, run: GateInput, baseline: GateInput | None) -> list[RuleResult]:
    """The implied rules of every gate: all trials ended; none failed unless a rule allows it."""
    found = []
    if run.missing:
        found.append(
            RuleResult(
                written=Written(text="every trial has a result"),
                verdict=GateVerdict.INCONCLUSIVE,
                sentence=f"{run.missing} of {run.trials} trials have no result.",
                n=f"{run.trials} trials",
                change="finish the run: proctor resume",
            )
        )
    unspoken = {} if rules.speaks_of_failures else _unspoken(run, baseline)
    if unspoken:
        told = ", ".join(f"{name} ({count}×)" for name, count in list(unspoken.items())[:5])
        verdicts = [
            GateVerdict.INFRASTRUCTURE if is_broken(name) else GateVerdict.REGRESSION for name in unspoken
        ]
        found.append(
            RuleResult(
                written=Written(text="no trial fails (implied: no rule is about failures)"),
                verdict=overall(verdicts),
                sentence=f"trials failed: {told}.",
                n=f"{run.trials} trials",
                change="a rule such as 'failure_count <= 2' allows some failures",
            )
        )
    return found


def _warnings(run: GateInput, baseline: GateInput | None) -> tuple[str, ...]:
    notes: Sequence[str] = run.results.notes
    if baseline is None:
        return tuple(notes)
    changed = differences(baseline.results.facts, run.results.facts)
    return tuple(dict.fromkeys([*changed, *notes]))


def _unspoken(run: GateInput, baseline: GateInput | None) -> dict[str, int]:
    """Failures that no rule is about: an experiment must run, an agent may fail its task."""
    agents = run.results.kind == "task"
    known = baseline.reasons if baseline else {}
    return {
        name: count
        for name, count in run.reasons.items()
        if name not in known and not (agents and _is_agents(name))
    }


def _is_agents(name: str) -> bool:
    word = name.partition(":")[0].strip()
    return word in set(Outcome) and Outcome(word).blame in {Blame.AGENT, Blame.PERSON}
