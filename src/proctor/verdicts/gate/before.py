"""Refuse a threshold on a field that no run of this kind has, before the run and not after it.

A run without results has the same fields as one with them. Only names that results bring along, the metrics
of experiments and the reasons of failures, cannot be known yet.
"""

from __future__ import annotations

from proctor.model.describe import describe
from proctor.model.plan import Plan
from proctor.model.run import RunInfo
from proctor.runfolder.read import RunData, TrialResult
from proctor.spec.node import nearest
from proctor.verdicts.gate.inputs import GateInput, input_of_run
from proctor.verdicts.gate.rules import NotWorse, RuleSet, Threshold, metric_and_statistic, refuse
from proctor.verdicts.gate.thresholds import look_up

STATISTICS = frozenset(describe([1.0, 2.0]))
_OPEN = ("failure_reasons", "arms", "images", "subjects", "warnings")
"""Fields whose inner names come with the results."""


def check_fields(rules: RuleSet, info: RunInfo, plan: Plan) -> None:
    """UsageError, as after the run, for a threshold on a field that does not exist."""
    for rule in rules.rules:
        if isinstance(rule, NotWorse) and rule.is_score and info.kind == "experiment":
            raise refuse(rule.written, "this is a run of experiments: it has times and no scores")
    thresholds = [rule for rule in rules.rules if isinstance(rule, Threshold)]
    if not thresholds:
        return
    run = _without_results(info, plan)
    for rule in thresholds:
        if rule.path.startswith("metrics."):
            _check_statistic(rule)
        elif rule.path.partition(".")[0] not in _OPEN:
            look_up(rule, run)


def _check_statistic(rule: Threshold) -> None:
    """The one metric that every point has is known, and so are its statistics."""
    metric, statistic = metric_and_statistic(rule.path)
    if metric == "duration_s" and statistic not in STATISTICS:
        hint = nearest(statistic, STATISTICS)
        raise refuse(rule.written, f"'{statistic}' is not a statistic of {metric}{hint}")


def _without_results(info: RunInfo, plan: Plan) -> GateInput:
    """The run as it will be, with one trial for each subject: fields do not depend on how many there are."""
    first = {trial.subject: trial for trial in reversed(plan.trials)}
    trials = tuple(TrialResult(planned=trial, attempts=(), counted=None) for trial in first.values())
    return input_of_run(RunData(info=info, trials=trials))
