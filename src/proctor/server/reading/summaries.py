"""What a run came to, for lists: a sentence, a score with its interval, who took part, what it cost.

Worked out from columns and counters. Of a run that has ended it is done once; of one that runs at most every
second, however often the list is read.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from proctor.disk import read_small
from proctor.errors import UsageError
from proctor.model.outcome import Outcome
from proctor.model.plan import Plan
from proctor.model.record import UNKNOWN_COST
from proctor.model.run import Execution, RunInfo
from proctor.model.trial import RunStatus
from proctor.quantity import number
from proctor.server.reading.kept import Kept
from proctor.store.store import Store
from proctor.store.views.runs import Spent
from proctor.verdicts.rollouts.columns import Layout, layout_of, rollouts_of
from proctor.verdicts.rollouts.scores import ArmScore, Rollouts
from proctor.verdicts.rollouts.words import headline as said_of
from proctor.verdicts.run.story import headline, sentence

MOST_TRIALS = 2_000_000
"""Trials whose places are kept in memory, eight bytes each."""
MOST_POINTS = 500
"""Points of an experiment that are read for a sentence; beyond that it only says how many there are."""
MOST_RECORDS = 20_000
"""Records that are read for what agents reported, where no gateway counted."""
LIVE_S = 1.0
"""How old what is said of a running run may be; or twenty times as long as it took to work out."""
_GATE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run came to so far."""

    headline: str = ""
    agents: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    score: dict[str, Any] | None = None
    """Of a single arm; None when there are several."""
    scores: tuple[dict[str, Any], ...] = ()
    """Of every arm with a score, best first."""
    passed: int = 0
    scored: int = 0
    errors: int = 0
    made_s: float = 0.0
    """How long this took to work out."""

    @classmethod
    def of_plan(cls, info: RunInfo, plan: Plan) -> Self:
        """Of a run of tasks of which nothing has begun."""
        return cls(
            headline=sentence(info, lambda: "", finished=0, total=info.total),
            agents=tuple(dict.fromkeys(trial.agent or "" for trial in plan.trials)),
            models=tuple(dict.fromkeys(trial.model for trial in plan.trials if trial.model)),
        )


@dataclass(slots=True)
class Summaries:
    """Summaries of runs, kept while they hold."""

    clock: Callable[[], float] = time.monotonic
    layouts: Kept[Layout] = field(default_factory=lambda: Kept(MOST_TRIALS))
    _live: Kept[tuple[float, Summary]] = field(default_factory=lambda: Kept(500))

    def layout(self, store: Store, info: RunInfo) -> Layout:
        """Where every trial of a run stands: made once, for a plan never changes."""
        return self.layouts.of(info.id, lambda: layout_of(store, info), weight=max(1, info.total))

    def rollouts(self, store: Store, info: RunInfo) -> Rollouts:
        """The run as a table of tasks and competitors, with what each came to."""
        return rollouts_of(store, info, self.layout(store, info))

    def live(self, store: Store, info: RunInfo) -> Summary:
        """Of a run that goes on: as fresh as its size allows."""
        now = self.clock()
        known = self._live.get(info.id)
        if known and now - known[0] < max(LIVE_S, 20 * known[1].made_s):
            return known[1]
        return self._live.put(info.id, (now, self.make(store, info)))[1]

    def make(self, store: Store, info: RunInfo) -> Summary:
        """Work it out."""
        began = time.perf_counter()
        if info.kind != "task":
            return _of_experiment(info, _of_points(store, info))
        finished = sum(info.counts.values()) - info.counts.get(Outcome.CANCELLED, 0)
        run = self.rollouts(store, info) if finished else None
        arms = self.layout(store, info).arms
        scores = _scores(run) if run else ()
        return Summary(
            headline=sentence(info, lambda: said_of(run) if run else "", finished=finished, total=info.total),
            agents=tuple(dict.fromkeys(arm.agent for arm in arms)),
            models=tuple(dict.fromkeys(arm.model for arm in arms if arm.model)),
            score=scores[0] if len(arms) == 1 and scores else None,
            scores=scores,
            passed=sum(arm.passed for arm in run.arms) if run else 0,
            scored=sum(arm.scored for arm in run.arms) if run else 0,
            errors=sum(arm.errors for arm in run.arms) if run else 0,
            made_s=time.perf_counter() - began,
        )


def _scores(run: Rollouts) -> tuple[dict[str, Any], ...]:
    found = [each for arm in run.arms if (each := _score(arm))]
    return tuple(sorted(found, key=lambda each: -each["value"]))


def _score(arm: ArmScore) -> dict[str, Any] | None:
    score, passes = arm.rewards.excluded, arm.passes.excluded
    if score is None or passes is None:
        return None
    wide, near, share = score.interval(), score.these_tasks, passes.interval()
    return {
        "arm": arm.arm.name,
        "label": arm.arm.label,
        "value": score.value,
        "low": _end(wide.low),
        "high": _end(wide.high),
        "claim": str(score.claim),
        "these_low": _end(near.low),
        "these_high": _end(near.high),
        "pass_rate": passes.value,
        "pass_low": _end(share.low),
        "pass_high": _end(share.high),
        "n": arm.scored,
        "passed": arm.passed,
        "errors": arm.errors,
        "tasks": score.tasks,
    }


def _end(value: float) -> float | None:
    """JSON knows no infinity, which an interval of rewards beyond 0 and 1 may have."""
    return value if math.isfinite(value) else None


def _of_experiment(info: RunInfo, headline: str) -> Summary:
    ended = [(Outcome(name), count) for name, count in info.counts.items()]
    return Summary(
        headline=headline,
        passed=info.counts.get(Outcome.PASSED, 0),
        scored=sum(count for outcome, count in ended if outcome.scored),
        errors=sum(count for outcome, count in ended if outcome.error),
    )


def _of_points(store: Store, info: RunInfo) -> str:
    from proctor.runfolder.read import RunData

    if info.total <= MOST_POINTS:
        return headline(RunData.from_store(store, info.id))
    passed = info.counts.get(Outcome.PASSED, 0)
    return sentence(
        info,
        lambda: f"{passed} of {info.total} parameter points were measured.",
        finished=sum(info.counts.values()),
        total=info.total,
    )


def reported(store: Store, info: RunInfo, models: Sequence[str]) -> Spent:
    """What agents say they used, for runs whose calls no gateway counted: imported ones, for instance."""
    if not models or info.total > MOST_RECORDS:
        return Spent()
    requests = tokens = unknown = 0
    usd = 0.0
    for row in store.results(info.id):
        usage = row.measured.usage
        requests += int(number(usage.get("requests")) or 0)
        tokens += sum(int(number(usage.get(f"{name}_tokens")) or 0) for name in ("prompt", "completion"))
        usd += number(usage.get("cost_usd")) or 0.0
        unknown += int(number(usage.get(UNKNOWN_COST)) or 0)
    return Spent(requests or int(tokens > 0), tokens, round(usd * 1e9), unknown)


def verdict_of(store: Store, info: RunInfo) -> dict[str, Any] | None:
    """What a run that has ended was made to decide: its race, or the gate beside it; None without either."""
    if info.execution is not Execution.RACE:
        return gate_of(info.folder)
    if info.status is not RunStatus.DONE:
        return None
    from proctor.runfolder.read import RunData
    from proctor.verdicts.race.judge import judge_race
    from proctor.verdicts.race.words import sentence as said

    try:
        found = judge_race(RunData.from_store(store, info.id))
    except UsageError:
        return None
    return {"verdict": found.verdict.value, "sentence": said(found)}


def gate_of(folder: str) -> dict[str, Any] | None:
    """The verdict that was written beside a run; None without one."""
    if not folder:
        return None
    try:
        found = json.loads(read_small(Path(folder, "gate.json"), _GATE_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    verdict = found.get("verdict") if isinstance(found, dict) else None
    if not isinstance(verdict, str):
        return None
    said = found.get("sentence")
    return {"verdict": verdict, "sentence": said if isinstance(said, str) else ""}
