"""The noise certificate of a run of rollouts, from the run's own rollouts alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Any

import numpy as np

from proctor.analysis.aa import Urns, alarms, correlation, detectable_loss, halve
from proctor.analysis.flaky import Stability, suite_stability
from proctor.analysis.power import MAX_ROLLOUTS, detectable, plan_table, spread_of
from proctor.report.aa.certificate import NoiseCertificate, Reach, Standing, Trial
from proctor.report.aa.evidence import drift, price, repeated
from proctor.report.aa.words import hours, plural, points, rate, worst
from proctor.report.data import RunData
from proctor.report.gate.reach import few_tasks
from proctor.report.gate.side import Side, side_of
from proctor.report.quantity import number, significant

MARGIN = 0.03
LEVEL = 0.95
REPEATS_NEEDED = 10
"""Rollouts beyond the first of each task, over the suite, before anything is said about luck."""
POWER_PAIRS = 200
MOST_WORK = 4_000_000
"""Rollouts dealt or drawn in all: a large run is resampled less often, and the certificate says how often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a certificate is to speak of."""

    rollouts: int | None = None
    """Per task and side; None: as many as the run has."""
    margin: float | None = None
    these_tasks: bool = False
    simulations: int = 1000
    seed: int = 0


def certify_scores(data: RunData, asked: Asked, *, repeats: Sequence[RunData] = ()) -> NoiseCertificate:
    """Resample the run, judge the pairs, and say what the suite is good for."""
    side = side_of(data, ())
    suite = _Suite(data, side, asked)
    if not suite.rewards:
        return suite.nothing()
    trials = [*suite.halves(), suite.simulated(), *repeated(repeats, side, suite.rule)]
    return suite.certificate(trials)


class _Suite:
    """A run's rewards and everything that is worked out from them."""

    def __init__(self, data: RunData, side: Side, asked: Asked) -> None:
        self.data, self.side, self.asked = data, side, asked
        self.margin = MARGIN if asked.margin is None else asked.margin
        self.tasks = side.results.tasks
        self.rewards = {task.name: task.scored for task in self.tasks if task.scored}
        self.scored = sum(map(len, self.rewards.values()))
        self.broken = sum(task.errors for task in self.tasks)
        self.count = asked.rollouts or (median_low(map(len, self.rewards.values())) if self.rewards else 0)
        self.urns = Urns(self.tasks)

    @property
    def simulations(self) -> int:
        """How many pairs of each kind are judged."""
        return max(100, min(self.asked.simulations, MOST_WORK // max(self.scored, 1)))

    @property
    def rule(self) -> str:
        """The rule of a gate that the certificate is about."""
        like = " for these tasks" if self.asked.these_tasks else ""
        return f"score not worse than baseline by more than {100 * self.margin:.6g}pp at 95%{like}"

    @property
    def repeats(self) -> int:
        """Rollouts that could have differed from an earlier one."""
        return self.scored - len(self.rewards)

    def halves(self) -> list[Trial]:
        """The run's own rollouts, dealt to two sides; nothing is assumed."""
        whole = [task for task in self.tasks if len(task.scored) + task.errors > 1]
        if len(whole) < len(self.tasks) or not any(len(task.scored) > 1 for task in whole):
            return []
        generator = np.random.default_rng([self.asked.seed, 1])
        pairs = (halve(whole, generator) for _ in range(self.simulations))
        found = alarms(pairs, self.margin, these_tasks=self.asked.these_tasks)
        least, most = (
            choose((len(task.scored) + task.errors) // 2 for task in whole) for choose in (min, max)
        )
        each = str(least) if least == most else f"{least} to {most}"
        return [
            Trial(
                name="splits",
                how=f"{plural(found.gate.pairs, 'random split')} of the run's own rollouts",
                per_side=f"{each} rollouts of {plural(len(whole), 'task')}",
                gate=found.gate,
                calls=found.calls,
                naive=found.naive,
            )
        ]

    def simulated(self) -> Trial:
        """Two suites of the size that was asked for, drawn from what each task has shown."""
        generator = np.random.default_rng([self.asked.seed, 2])
        pairs = (self.urns.draw(self.count, generator) for _ in range(self.simulations))
        found = alarms(pairs, self.margin, these_tasks=self.asked.these_tasks)
        return Trial(
            name="simulated",
            how=f"{plural(found.gate.pairs, 'pair')} of suites redrawn from what each task showed",
            per_side=f"{plural(self.count, 'rollout')} of {plural(len(self.rewards), 'task')}",
            gate=found.gate,
            calls=found.calls,
            naive=found.naive,
        )

    def loss(self, rollouts: int) -> float | None:
        """What the gate itself finds with so many rollouts on each side."""
        return detectable_loss(
            self.urns,
            rollouts,
            self.margin,
            these_tasks=self.asked.these_tasks,
            pairs=max(50, min(POWER_PAIRS, self.simulations // 4)),
            seed=self.asked.seed,
        )

    def nothing(self) -> NoiseCertificate:
        """No rollout was scored."""
        infrastructure = self.broken > 0
        what = (
            f"all {plural(self.broken, 'rollout')} ended in an error that was not the agent's"
            if infrastructure
            else "no rollout has ended"
        )
        return self._filled(
            Standing.INFRASTRUCTURE if infrastructure else Standing.TOO_LITTLE,
            f"Nothing can be certified: {what}.",
            ("mend what failed (proctor show RUN, proctor doctor) and run the suite again",),
        )

    def certificate(self, trials: Sequence[Trial]) -> NoiseCertificate:
        """The verdict first, then the figures."""
        stability = suite_stability(self.rewards)
        loss = self.loss(self.count)
        standing = self._standing(trials, loss)
        reach = self._reach(loss)
        return self._filled(
            standing,
            self._sentence(standing, trials, loss),
            self._next(standing, loss, reach),
            trials=tuple(trials),
            detectable=loss,
            reach=reach,
            correlation=correlation(list(self.rewards.values()), seed=self.asked.seed),
            flaky=tuple(task for task in stability.tasks if task.stability is Stability.FLAKY),
            flaky_share=stability.flaky_share,
            drift=drift(self.rewards),
        )

    def _filled(
        self, standing: Standing, sentence: str, next_steps: tuple[str, ...], **more: Any
    ) -> NoiseCertificate:
        total = self.scored + self.broken
        return NoiseCertificate(
            kind="task",
            run=self.side.label,
            run_id=self.data.info.id,
            digest=self.side.digest,
            standing=standing,
            sentence=sentence,
            next_steps=next_steps,
            metric="reward",
            margin=self.margin,
            level=LEVEL,
            claim="these tasks" if self.asked.these_tasks else "tasks like these",
            subjects=len(self.rewards),
            values=self.scored,
            count=self.count,
            broken=self.broken,
            broken_share=self.broken / total if total else 0.0,
            simulations=self.simulations,
            seed=self.asked.seed,
            notes=tuple(self._notes()),
            **more,
        )

    def _standing(self, trials: Sequence[Trial], loss: float | None) -> Standing:
        if any(trial.gate.excessive for trial in trials):
            return Standing.CRIES_WOLF
        return Standing.TOO_LITTLE if self._short() or loss is None else Standing.GOOD

    def _short(self) -> str:
        """What there is too little of; empty when there is enough."""
        few = "" if self.asked.these_tasks else few_tasks(len(self.rewards), LEVEL)
        if few:
            return few
        if self.repeats < REPEATS_NEEDED:
            return (
                f"{plural(self.scored, 'scored rollout')} of {plural(len(self.rewards), 'task')} show too "
                f"little luck inside tasks; {REPEATS_NEEDED} repeats beyond the first of each are the least"
            )
        return "the agent earns nothing, so no loss can show" if self.urns.mean <= 0 else ""

    def _sentence(self, standing: Standing, trials: Sequence[Trial], loss: float | None) -> str:
        size = f"{plural(self.count, 'rollout')} of {plural(len(self.rewards), 'task')}"
        shown = next(trial for trial in trials if trial.name == "simulated")
        if standing is Standing.CRIES_WOLF:
            shown = worst(trials)
            return (
                f"This suite cries wolf: the gate calls {rate(shown.gate)} of identical pairs a regression, "
                f"with {shown.per_side} on each side."
            )
        if short := self._short():
            return f"Too little to certify: {short}."
        if loss is None:
            return f"Too little to certify: not even a total loss is found with 80 % probability at {size}."
        return (
            f"An honest loss of {points(loss)} or more is found with 80 % probability at {size}; "
            f"false alarms {rate(shown.gate)}."
        )

    def _reach(self, loss: float | None) -> tuple[Reach, ...]:
        """From 1 to 20 rollouts, brought to what the gate itself found at the size that was simulated."""
        spread = spread_of(list(self.rewards.values()))
        anchor = self.count
        if loss is None and anchor < MAX_ROLLOUTS:
            anchor, loss = MAX_ROLLOUTS, self.loss(MAX_ROLLOUTS)
        usual = detectable(spread, anchor)
        factor = loss / usual if loss is not None and usual > 0 else None
        seconds, cost = price(self.data)
        rows = plan_table(
            spread,
            max_rollouts=MAX_ROLLOUTS,
            seconds_per_rollout=seconds,
            cost_per_rollout_usd=cost,
            parallel=int(number(self.data.info.resolved.get("parallel")) or 1),
        )
        found = []
        for row in rows:
            reach = row.tasks_like_these * factor if factor is not None else None
            if factor is None and loss is not None:
                # Nothing has varied yet: the only luck is that of the loss itself.
                reach = loss * math.sqrt(anchor / row.rollouts)
            if reach is not None:
                missed = anchor != self.count and row.rollouts <= self.count
                reach = None if missed else max(reach, self.margin)
            found.append(
                Reach(
                    count=row.rollouts,
                    detectable=reach if reach is not None and reach <= self.urns.mean else None,
                    total=row.total_rollouts,
                    hours=row.hours,
                    cost_usd=row.cost_usd,
                )
            )
        return tuple(found)

    def _next(self, standing: Standing, loss: float | None, reach: Sequence[Reach]) -> tuple[str, ...]:
        steps = []
        if standing is Standing.CRIES_WOLF:
            steps.append("do not gate on this suite before its flaky tasks are vetted: proctor vet TASKS")
        if self._short() and not self.asked.these_tasks and few_tasks(len(self.rewards), LEVEL):
            steps.append(
                "add tasks, or judge these tasks only: --these-tasks here and 'for these tasks' in the rule"
            )
        elif self._short():
            steps.append("run more rollouts: proctor aa SPEC --rollouts 5")
        elif loss is None:
            more = next((row for row in reach if row.detectable is not None), None)
            steps.append(
                f"{plural(more.count, 'rollout')} per task and side would find {points(more.detectable)}"
                if more and more.detectable is not None
                else "add tasks that the agent can pass: more rollouts of these would not be enough"
            )
        if standing is Standing.GOOD and loss is not None:
            steps.append(self._gate_step(loss, reach))
        if self.broken:
            steps.append(
                f"mend what broke {plural(self.broken, 'rollout')} first: "
                "errors cost more certainty than rollouts buy"
            )
        return tuple(steps)

    def _gate_step(self, loss: float, reach: Sequence[Reach]) -> str:
        first = f"gate with '{self.rule}'"
        half = next((row for row in reach if row.detectable is not None and row.detectable <= loss / 2), None)
        if half is None:
            return f"{first}; to find half that loss, add tasks: more rollouts of these are not enough"
        time = "" if half.hours is None else f", {hours(half.hours)}"
        cost = "" if half.cost_usd is None else f", ${significant(half.cost_usd, 3)}"
        more = f"{plural(half.count, 'rollout')} per task and side would find half that loss"
        return f"{first}; {more}{time}{cost}"

    def _notes(self) -> list[str]:
        notes = []
        missing = len(self.data.trials) - len(self.data.finished)
        if missing:
            notes.append(f"{plural(missing, 'trial')} of {len(self.data.trials)} have no result yet")
        agents = {(trial.planned.agent, trial.planned.model) for trial in self.data.trials}
        if len(agents) > 1:
            notes.append(
                f"{len(agents)} agents and models took part; each task × agent is a task here, as in the gate"
            )
        return notes
