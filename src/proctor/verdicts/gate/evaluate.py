"""Judge a run by its rules. Pure: the same rules, run, baseline and seed give the same verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proctor.analysis.p_values import holm
from proctor.analysis.times import Noise
from proctor.model.facts import differences
from proctor.model.outcome import Blame, Outcome
from proctor.verdicts.gate.ratios import ratio_study
from proctor.verdicts.gate.rules import NotWorse, Reasons, Rule, RuleSet, Threshold, Written, needs_baseline
from proctor.verdicts.gate.side import Side, is_broken
from proctor.verdicts.gate.statistical import Study, score_study, settle
from proctor.verdicts.gate.thresholds import judge_reasons, judge_threshold
from proctor.verdicts.gate.verdict import GateResult, GateVerdict, RuleResult, overall


def evaluate(
    rules: RuleSet,
    side: Side,
    baseline: Side | None = None,
    *,
    held_against: str = "",
    noise: Mapping[str, Noise] | None = None,
    seed: int = 0,
) -> GateResult:
    """Every rule's verdict, and the gate's. `held_against` is what the baseline is called."""
    studies: dict[int, Study] = {}
    judged: dict[int, RuleResult] = {}
    for at, rule in enumerate(rules.rules):
        if needs_baseline(rule) and baseline is None:
            judged[at] = _without_baseline(rule)
        elif isinstance(rule, NotWorse):
            assert baseline is not None
            if rule.is_score:
                studies[at] = score_study(rule, side, baseline, seed=seed)
            else:
                studies[at] = ratio_study(rule, side, baseline, noise=noise or {}, seed=seed)
        else:
            judged[at] = _plain(rule, side, baseline)
    adjusted = iter(holm([each.p_value for study in studies.values() for each in study.findings]))
    comparisons = 0
    for at, study in studies.items():
        own = [next(adjusted) for _ in study.findings]
        comparisons += len(own)
        judged[at] = settle(study, own)
    results = [judged[at] for at in range(len(rules.rules))]
    return GateResult(
        results=(*results, *_implied(rules, side, baseline)),
        label=side.label,
        run_id=side.results.run_id,
        digest=side.digest,
        baseline=held_against or (baseline.label if baseline else ""),
        comparisons=comparisons,
        warnings=_warnings(side, baseline),
    )


def _plain(rule: Threshold | Reasons, side: Side, baseline: Side | None) -> RuleResult:
    if isinstance(rule, Threshold):
        return judge_threshold(rule, side, baseline)
    return judge_reasons(rule, side, baseline)


def _without_baseline(rule: Rule) -> RuleResult:
    return RuleResult(
        written=rule.written,
        verdict=GateVerdict.INCONCLUSIVE,
        sentence="there is no baseline to compare with.",
        change="pin one: proctor baseline pin NAME RUN --reason '…'",
    )


def _implied(rules: RuleSet, side: Side, baseline: Side | None) -> list[RuleResult]:
    """The implied rules of every gate: all trials ended; none failed unless a rule allows it."""
    found = []
    if side.missing:
        found.append(
            RuleResult(
                written=Written(text="every trial has a result"),
                verdict=GateVerdict.INCONCLUSIVE,
                sentence=f"{side.missing} of {side.trials} trials have no result.",
                n=f"{side.trials} trials",
                change="finish the run: proctor resume",
            )
        )
    unspoken = {} if rules.speaks_of_failures else _unspoken(side, baseline)
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
                n=f"{side.trials} trials",
                change="a rule such as 'failure_count <= 2' allows some failures",
            )
        )
    return found


def _warnings(side: Side, baseline: Side | None) -> tuple[str, ...]:
    notes: Sequence[str] = side.results.notes
    if baseline is None:
        return tuple(notes)
    changed = differences(baseline.results.facts, side.results.facts)
    return tuple(dict.fromkeys([*changed, *notes]))


def _unspoken(side: Side, baseline: Side | None) -> dict[str, int]:
    """Failures that no rule is about: an experiment must run, an agent may fail its task."""
    agents = side.results.kind == "task"
    known = baseline.reasons if baseline else {}
    return {
        name: count
        for name, count in side.reasons.items()
        if name not in known and not (agents and _is_agents(name))
    }


def _is_agents(name: str) -> bool:
    word = name.partition(":")[0].strip()
    return word in set(Outcome) and Outcome(word).blame in {Blame.AGENT, Blame.PERSON}
