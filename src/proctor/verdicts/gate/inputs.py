"""What a gate uses of a run: fields for thresholds, values for statistics, and how its trials ended."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from proctor.analysis.estimate import denominators
from proctor.model.describe import describe
from proctor.model.outcome import Blame, Outcome, is_pass
from proctor.model.record import UNKNOWN_COST, AttemptRecord
from proctor.model.run import RunInfo
from proctor.quantity import number
from proctor.runfolder.files import encode
from proctor.runfolder.read import RunData, metric_of
from proctor.spec.node import nearest
from proctor.verdicts.compare.results import ArmRewards, ResultPoint, ResultSet, from_run
from proctor.verdicts.gate.rules import NotWorse, Threshold, refuse
from proctor.verdicts.rollouts.document import readings
from proctor.verdicts.run.summary import summary

RESOURCES = (
    "duration_s",
    "cpu_s",
    "peak_memory_bytes",
    "cost_usd",
    "prompt_tokens",
    "completion_tokens",
    "requests",
    "tool_calls",
    "steps",
)
"""Metrics that any attempt may have, besides those it reports itself."""
_ALIASES = {"peak_memory_bytes": "peak_rss_bytes"}
"""Names of resources in processes → their names in sandboxes."""
_TOTALS = ("cost_usd", "prompt_tokens", "completion_tokens", "requests", "tool_calls")


@dataclass(frozen=True, slots=True, kw_only=True)
class GateInput:
    """A run or a baseline, as a gate sees it."""

    results: ResultSet
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Values that thresholds can use, by dotted path."""
    stats: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Point → metric → statistic → value: values that `metrics.…` thresholds can use."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Failure reason → how many trials; a reason begins with the outcome."""
    trials: int = 0
    missing: int = 0
    """Trials without a result."""
    broken: int = 0
    """Trials that the infrastructure or a provider broke."""
    digest: str = ""
    """Of every result that counts."""
    noise: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Metric → sigma, df and source of its run-to-run noise, where it is known."""

    @property
    def label(self) -> str:
        """What it is called."""
        return self.results.label

    @property
    def judged(self) -> int:
        """Trials that ended by the agent's doing or by a broken machine or provider."""
        return self.trials - self.missing

    def arms(self, rule: Threshold | NotWorse) -> list[ArmRewards]:
        """The arms that a rule is about: the one that it names, else all."""
        known = self.results.arms
        chosen = [arm for arm in known if not rule.arm or rule.arm in {arm.name, arm.label}]
        if chosen or not rule.arm:
            return chosen
        hint = nearest(rule.arm, [arm.name for arm in known])
        raise refuse(rule.written, f"{self.label} has no arm '{rule.arm}'{hint}")


def input_of_run(data: RunData, metrics: Sequence[str] | None = None) -> GateInput:
    """A run, with the values of these metrics, or of all it has."""
    wanted = known_metrics(data) if metrics is None else tuple(metrics)
    results = renamed(from_run(data, with_aliases(wanted) or (metric_of(data.info.kind),)))
    tally = Tally(trials=len(data.trials))
    for trial in data.trials:
        if trial.counted:
            record = trial.counted
            kind = record.failure.type if record.failure else ""
            took_s = record.ended_at - record.started_at
            tally.add(record.outcome, record.reward, took_s, kind, suspect=record.suspect)
    return GateInput(
        results=results,
        fields=_fields(data, results, tally),
        stats=_stats(data, results),
        reasons=dict(sorted(tally.reasons.items())),
        trials=tally.trials,
        missing=tally.trials - tally.ended,
        broken=tally.broken,
        digest=run_digest(data),
    )


@dataclass(slots=True)
class Tally:
    """How the trials of a run ended."""

    trials: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    passed: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    took_s: list[float] = field(default_factory=list)
    suspects: int = 0

    def add(
        self,
        outcome: Outcome,
        reward: float | None,
        took_s: float,
        failure: str = "",
        *,
        suspect: bool = False,
    ) -> None:
        """Count one that ended; `failure` is the kind of error, where there was one."""
        passed = is_pass(outcome, reward)
        self.outcomes[outcome] += 1
        self.suspects += suspect
        self.took_s.append(took_s)
        self.passed += passed
        if not passed:
            self.reasons[reason(outcome, failure)] += 1

    @property
    def ended(self) -> int:
        """Trials with a result."""
        return len(self.took_s)

    @property
    def scored(self) -> int:
        """Trials that the agent itself ended."""
        return sum(count for outcome, count in self.outcomes.items() if outcome.scored)

    @property
    def broken(self) -> int:
        """Trials that the infrastructure or a provider broke."""
        return sum(count for outcome, count in self.outcomes.items() if outcome.broken)


def with_aliases(metrics: Sequence[str]) -> tuple[str, ...]:
    """Metrics, and the other names under which they may be stored."""
    return (*metrics, *(_ALIASES[name] for name in metrics if name in _ALIASES))


def renamed(results: ResultSet) -> ResultSet:
    """The same with every metric under its own name."""
    if not any(alias in point.samples for point in results.points for alias in _ALIASES.values()):
        return results
    return replace(results, points=tuple(map(_renamed, results.points)))


def _renamed(point: ResultPoint) -> ResultPoint:
    samples = dict(point.samples)
    for name, alias in _ALIASES.items():
        values = samples.pop(alias, ())
        if not samples.get(name):
            samples[name] = values
    return replace(point, samples={name: values for name, values in samples.items() if values})


def input_of_document(
    document: Mapping[str, Any],
    *,
    label: str,
    samples: Mapping[str, Sequence[float]] | None = None,
) -> GateInput:
    """A summary that is not a run's own, such as a performance summary, with the values behind it."""
    reasons = document.get("failure_reasons")
    known = {str(name): int(number(count) or 0) for name, count in _mapping(reasons).items()}
    values = {metric: tuple(each) for metric, each in (samples or {}).items() if len(each)}
    point = ResultPoint(name="all episodes", samples=values)
    trials = int(number(document.get("episodes")) or number(document.get("total")) or 0)
    return GateInput(
        results=ResultSet(
            label=label, source="document", points=(point,) if values else (), metrics=tuple(values)
        ),
        fields=document,
        stats={point.name: {metric: describe(each) for metric, each in values.items()}} if values else {},
        reasons=known,
        trials=trials,
        broken=sum(count for name, count in known.items() if is_broken(name)),
        digest=hashlib.sha256(encode(dict(document)).encode("utf-8", "replace")).hexdigest(),
    )


def reason(outcome: Outcome, failure: str) -> str:
    """Why a trial did not pass: the outcome, and the kind of error where there is one."""
    return f"{outcome.value}: {failure}" if failure else outcome.value


def is_broken(text: str) -> bool:
    """Whether a failure reason is about infrastructure or a provider."""
    word = text.partition(":")[0].strip()
    return word in set(Outcome) and Outcome(word).broken


def known_metrics(data: RunData) -> tuple[str, ...]:
    """Every metric that a trial reported, and the resources."""
    names: dict[str, None] = dict.fromkeys(RESOURCES)
    for trial in data.finished[:100]:
        assert trial.counted is not None
        names |= dict.fromkeys(
            name
            for name, value in trial.counted.metrics.items()
            if number(value) is not None or isinstance(value, Mapping)
        )
    return tuple(names)


def run_digest(data: RunData) -> str:
    """One digest over every result that counts, in plan order: the same for the same results anywhere."""
    found = hashlib.sha256(data.info.plan_digest.encode())
    for trial in data.trials:
        record = trial.counted
        row: list[Any] = [trial.planned.key, None]
        if record:
            row = [record.key, record.number, record.outcome.value, record.reward, record.metrics]
        found.update(encode(row).encode("utf-8", "replace"))
    return found.hexdigest()


def _stats(data: RunData, results: ResultSet) -> dict[str, Mapping[str, Any]]:
    """What the attempt reported, and a description of the values where it reported none."""
    reported = {}
    if data.info.kind == "experiment":
        reported = {trial.planned.label: trial.counted.metrics for trial in data.trials if trial.counted}
    found: dict[str, Mapping[str, Any]] = {}
    for point in results.points:
        if not point.failed:
            own = reported.get(point.name, {})
            more = {name: each for name, each in point.samples.items() if each and name not in own}
            found[point.name] = {**own, **{name: describe(each) for name, each in more.items()}}
    return found


class Fields(Mapping[str, Any]):
    """The fields that people write thresholds on, and behind them the summary, made when it is asked for.

    The summary of a large run takes seconds, and most rules never look at it.
    """

    def __init__(self, own: Mapping[str, Any], rest: Callable[[], Mapping[str, Any]]) -> None:
        self._own = own
        self._rest = rest
        self._all: dict[str, Any] | None = None

    def _whole(self) -> dict[str, Any]:
        if self._all is None:
            self._all = {**self._rest(), **self._own}
        return self._all

    def __getitem__(self, name: str) -> Any:
        if self._all is None and name.partition(".")[0] in self._own:
            return self._own[name]
        return self._whole()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole())

    def __len__(self) -> int:
        return len(self._whole())


def count_fields(info: RunInfo, tally: Tally) -> dict[str, Any]:
    """Counts and times of a run."""
    ended, outcomes, passed = tally.ended, tally.outcomes, tally.passed
    took = describe(tally.took_s)
    wall_s = info.finished_at - info.started_at if info.finished_at and info.started_at else None
    blame: Counter[Blame] = Counter()
    for outcome, count in outcomes.items():
        blame[outcome.blame] += count
    return {
        "outcomes": {each.value: outcomes[each] for each in Outcome},
        "blame": {each.value: blame[each] for each in Blame},
        "episodes": tally.trials,
        "success_count": passed,
        "failure_count": ended - passed,
        "success_rate": passed / tally.scored if tally.scored else None,
        "failure_reasons": dict(sorted(tally.reasons.items())),
        "infrastructure_errors": tally.broken,
        "suspect_count": tally.suspects,
        "max_wall_clock_s": took.get("max"),
        "p50_wall_clock_s": took.get("p50"),
        "p95_wall_clock_s": took.get("p95"),
        "wall_clock_total_s": wall_s,
        "throughput_eps": ended / wall_s if wall_s else None,
    }


def score_fields(results: ResultSet) -> dict[str, Any]:
    """Score and pass rate of every arm, under the three readings of errors; of the run if it has one arm."""
    found: dict[str, Any] = {}
    for name in ("score", "pass_rate"):
        each = {arm.name: readings(denominators(arm.rewards(name))) for arm in results.arms}
        found |= {name: next(iter(each.values())) if len(each) == 1 else None, f"{name}s": each}
    return found


def _fields(data: RunData, results: ResultSet, tally: Tally) -> Fields:
    """The counts, totals and extremes of a run, and its summary."""
    counted = [trial.counted for trial in data.trials if trial.counted]
    found: dict[str, Any] = {
        **count_fields(data.info, tally),
        "run_artifacts": _artifacts(data),
        "peak_memory_bytes": max(_each(counted, "peak_memory_bytes"), default=None),
        **_totals(data),
    }
    if data.info.kind == "task":
        found |= score_fields(results)
    return Fields(found, lambda: summary(data))


def _artifacts(data: RunData) -> dict[str, float]:
    sizes = [
        artifact.size_bytes
        for trial in data.trials
        for record in trial.attempts
        for artifact in record.artifacts
    ]
    total = sum(sizes)
    return {
        "file_count": len(sizes),
        "total_bytes": total,
        "avg_bytes": total / len(sizes) if sizes else 0.0,
    }


def _totals(data: RunData) -> dict[str, float | None]:
    """Sums over every attempt, also those that do not count. None where nothing was reported."""
    records = [record for trial in data.trials for record in trial.attempts]
    found: dict[str, float | None] = {}
    for name in _TOTALS:
        amounts = [value for record in records if (value := number(record.usage.get(name))) is not None]
        found[name] = math.fsum(amounts) if amounts else None
    if any(record.usage.get(UNKNOWN_COST) for record in records):
        found["cost_usd"] = None
    used = [found["prompt_tokens"], found["completion_tokens"]]
    found["tokens_used"] = (
        sum(each or 0.0 for each in used) if any(each is not None for each in used) else None
    )
    return found


def _each(records: Iterable[AttemptRecord], name: str) -> list[float]:
    return [
        value
        for record in records
        if (value := number(record.ledger.get(name, record.ledger.get(_ALIASES.get(name, name))))) is not None
    ]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
