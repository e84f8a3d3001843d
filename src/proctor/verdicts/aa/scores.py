"""The noise certificate of a run of rollouts, from the run's own rollouts alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Any

import numpy as np

from proctor.analysis.aa import Urns, alarms, correlation, detectable_loss, halve
from proctor.analysis.claim import Claim, chosen_claim, too_few
from proctor.analysis.flaky import Stability, suite_stability
from proctor.analysis.power import MAX_ROLLOUTS, plan_table, spread_of
from proctor.quantity import number, significant
from proctor.runfolder.read import RunData
from proctor.verdicts.aa.certificate import NoiseCertificate, Power, Standing, Trial
from proctor.verdicts.aa.evidence import drift, price, repeated
from proctor.verdicts.aa.loss import USEFUL, Curve, Losses, is_blind, power_rows
from proctor.verdicts.aa.words import hours, plural, points, rate, worst
from proctor.verdicts.gate.inputs import GateInput, input_of_run

MARGIN = 0.03
LEVEL = 0.95
REPEATS_NEEDED = 10
"""Repeated rollouts (beyond the first of each task) that are needed to estimate chance."""
POWER_PAIRS = 200
MOST_WORK = 4_000_000
"""Rollouts resampled in total: a large run is resampled less often, and the certificate says how often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a certificate is about."""

    rollouts: int | None = None
    """Per task and side; None: as many as the run has."""
    margin: float | None = None
    these_tasks: bool | None = None
    """None: the widest claim that the number of tasks can judge, as in a gate."""
    simulations: int = 1000
    seed: int = 0


def certify_scores(data: RunData, asked: Asked, *, repeats: Sequence[RunData] = ()) -> NoiseCertificate:
    """Resample the run, judge the pairs, and say what the suite is good for."""
    side = input_of_run(data, ())
    suite = _Suite(data, side, asked)
    if not suite.rewards:
        return suite.nothing()
    trials = [*suite.halves(), suite.simulated(), *repeated(repeats, side, suite.rule)]
    return suite.certificate(trials)


class _Suite:
    """A run's rewards and everything calculated from them."""

    def __init__(self, data: RunData, side: GateInput, asked: Asked) -> None:
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
        like = "" if self.asked.these_tasks is None else f" for {self.claim}"
        return f"score not worse than baseline by more than {100 * self.margin:.6g}pp at 95%{like}"

    @property
    def claim(self) -> Claim:
        """What the gate would claim of this suite."""
        distinct = {task.name for arm in self.side.results.arms for task in arm.tasks}
        return chosen_claim(self.asked.these_tasks, len(distinct), LEVEL)

    @property
    def these_tasks(self) -> bool | None:
        """Whether pairs are judged for these tasks only; of several arms the tasks of all are not more."""
        return self.claim is Claim.THESE_TASKS if len(self.side.results.arms) > 1 else self.asked.these_tasks

    @property
    def repeats(self) -> int:
        """Rollouts that could have differed from an earlier one."""
        return self.scored - len(self.rewards)

    def halves(self) -> list[Trial]:
        """The run's own rollouts, divided into two sides at random; nothing is assumed."""
        whole = [task for task in self.tasks if len(task.scored) + task.errors > 1]
        if len(whole) < len(self.tasks) or not any(len(task.scored) > 1 for task in whole):
            return []
        generator = np.random.default_rng([self.asked.seed, 1])
        pairs = (halve(whole, generator) for _ in range(self.simulations))
        found = alarms(pairs, self.margin, these_tasks=self.these_tasks)
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
        """Two suites of the requested size, drawn from each task's results."""
        generator = np.random.default_rng([self.asked.seed, 2])
        pairs = (self.urns.draw(self.count, generator) for _ in range(self.simulations))
        found = alarms(pairs, self.margin, these_tasks=self.these_tasks)
        return Trial(
            name="simulated",
            how=f"{plural(found.gate.pairs, 'pair')} of suites resampled from each task's results",
            per_side=f"{plural(self.count, 'rollout')} of {plural(len(self.rewards), 'task')}",
            gate=found.gate,
            calls=found.calls,
            naive=found.naive,
        )

    def losses(self, rollouts: int) -> Losses:
        """What the gate itself detects with this many rollouts on each side."""

        def found(*, concentrated: bool) -> float | None:
            return detectable_loss(
                self.urns,
                rollouts,
                self.margin,
                these_tasks=self.these_tasks,
                concentrated=concentrated,
                pairs=max(50, min(POWER_PAIRS, self.simulations // 4)),
                seed=self.asked.seed,
            )

        even = found(concentrated=False)
        return Losses(even, None if even is None else found(concentrated=True))

    def nothing(self) -> NoiseCertificate:
        """No rollout was scored."""
        infrastructure = self.broken > 0
        what = (
            f"all {plural(self.broken, 'rollout')} ended in an error not caused by the agent"
            if infrastructure
            else "no rollout has finished"
        )
        return self._filled(
            Standing.INFRASTRUCTURE if infrastructure else Standing.TOO_LITTLE,
            f"Nothing can be certified: {what}.",
            ("fix what failed (see proctor show RUN and proctor doctor), then run the suite again",),
        )

    def certificate(self, trials: Sequence[Trial]) -> NoiseCertificate:
        """The verdict first, then the figures."""
        stability = suite_stability(self.rewards)
        losses = self.losses(self.count)
        loss = losses.claimed
        standing = self._standing(trials, loss)
        power = self._power(losses)
        return self._filled(
            standing,
            self._sentence(standing, trials, loss),
            self._next(standing, loss, power),
            trials=tuple(trials),
            detectable=loss,
            detectable_even=losses.even,
            detectable_concentrated=losses.concentrated,
            power=power,
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
            claim=self.claim.value,
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
            return Standing.FALSE_ALARMS
        if self._short() or loss is None:
            return Standing.TOO_LITTLE
        return Standing.BLIND if is_blind(loss, self.margin) else Standing.GOOD

    def _short(self) -> str:
        """What there is too little of; empty when there is enough."""
        few = too_few(len(self.rewards), LEVEL)
        if few and self.claim is Claim.TASKS_LIKE_THESE:
            return few
        if self.repeats < REPEATS_NEEDED:
            return (
                f"{plural(self.scored, 'scored rollout')} of {plural(len(self.rewards), 'task')} are too "
                f"few to estimate chance: at least {REPEATS_NEEDED} repeats beyond the first of each "
                "task are needed"
            )
        return "the agent's score is 0, so no loss can be detected" if self.urns.mean <= 0 else ""

    def _sentence(self, standing: Standing, trials: Sequence[Trial], loss: float | None) -> str:
        size = f"{plural(self.count, 'rollout')} of {plural(len(self.rewards), 'task')}"
        shown = next(trial for trial in trials if trial.name == "simulated")
        if standing is Standing.FALSE_ALARMS:
            shown = worst(trials)
            return (
                f"Too many false alarms: the gate reports a regression for {rate(shown.gate)} of "
                "identical pairs, "
                f"with {shown.per_side} on each side."
            )
        if short := self._short():
            return f"Too little data to certify: {short}."
        if loss is None:
            return (
                "Too little data to certify: not even a total loss would be "
                f"detected with 80 % probability at {size}."
            )
        blind = "Quiet but blind: only a" if standing is Standing.BLIND else "A"
        return (
            f"{blind} real drop of {points(loss)} or more would be detected with 80 % probability at {size}, "
            f"however it is spread over the tasks; false alarms {rate(shown.gate)}."
        )

    def _power(self, found: Losses) -> tuple[Power, ...]:
        """From 1 to 20 rollouts, brought to what the gate itself found at the size that was simulated."""
        spread = spread_of(list(self.rewards.values()))
        anchor = self.count
        if found.claimed is None and anchor < MAX_ROLLOUTS:
            anchor, found = MAX_ROLLOUTS, self.losses(MAX_ROLLOUTS)
        seconds, cost = price(self.data)
        rows = plan_table(
            spread,
            max_rollouts=MAX_ROLLOUTS,
            seconds_per_rollout=seconds,
            cost_per_rollout_usd=cost,
            parallel=int(number(self.data.info.resolved.get("parallel")) or 1),
        )
        return power_rows(
            rows,
            Curve(spread, self.urns, these_tasks=self.claim is Claim.THESE_TASKS),
            anchor,
            found,
            fewest=self.count if anchor != self.count else 0,
            margin=self.margin,
            most=self.urns.mean,
        )

    def _next(self, standing: Standing, loss: float | None, power: Sequence[Power]) -> tuple[str, ...]:
        steps = []
        if standing is Standing.FALSE_ALARMS:
            steps.append(
                "do not use this suite in a gate before its flaky tasks are vetted: proctor vet TASKS"
            )
        if self.claim is Claim.TASKS_LIKE_THESE and too_few(len(self.rewards), LEVEL):
            steps.append(
                "add tasks, or judge these tasks only: --these-tasks here and 'for these tasks' in the rule"
            )
        elif self._short():
            steps.append("run more rollouts: proctor aa SPEC --rollouts 5")
        elif loss is None:
            more = next((row for row in power if row.detectable is not None), None)
            steps.append(
                f"{plural(more.count, 'rollout')} per task and side would detect {points(more.detectable)}"
                if more and more.detectable is not None
                else "add tasks that the agent can pass: more rollouts of these would not be enough"
            )
        if standing is Standing.GOOD and loss is not None:
            steps.append(self._gate_step(loss, power))
        if standing is Standing.BLIND and loss is not None:
            steps.append(self._sight_step(power))
        if self.broken:
            steps.append(
                f"fix what broke {plural(self.broken, 'rollout')} first: "
                "errors add more uncertainty than extra rollouts remove"
            )
        return tuple(steps)

    def _sight_step(self, power: Sequence[Power]) -> str:
        """How the suite would be good for the margin that was asked for."""
        least = USEFUL * self.margin
        enough = next(
            (
                row
                for row in power
                if row.detectable is not None and not is_blind(row.detectable, self.margin)
            ),
            None,
        )
        how = (
            f"run {plural(enough.count, 'rollout')} per task and side, which would detect {points(least)}"
            if enough
            else f"add tasks: more rollouts of these would not detect {points(least)}"
        )
        return f"{how}; or accept that smaller drops are not detected: a larger --margin says so"

    def _gate_step(self, loss: float, power: Sequence[Power]) -> str:
        first = f"gate with '{self.rule}'"
        half = next((row for row in power if row.detectable is not None and row.detectable <= loss / 2), None)
        if half is None:
            return f"{first}; to detect half that drop, add tasks: more rollouts of these are not enough"
        time = "" if half.hours is None else f", {hours(half.hours)}"
        cost = "" if half.cost_usd is None else f", ${significant(half.cost_usd, 3)}"
        more = f"{plural(half.count, 'rollout')} per task and side would detect half that drop"
        return f"{first}; {more}{time}{cost}"

    def _notes(self) -> list[str]:
        notes = []
        missing = len(self.data.trials) - len(self.data.finished)
        if missing:
            notes.append(f"{plural(missing, 'trial')} of {len(self.data.trials)} have no result yet")
        arms = len(self.side.results.arms)
        if arms > 1:
            notes.append(
                f"{arms} arms took part, and their rollouts of a task are drawn apart; a gate judges each "
                "arm by itself, with fewer rollouts than here"
            )
        return notes
