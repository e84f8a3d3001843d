"""The noise certificate of a run of experiments: its iterations split in two, and its repeats in the store.

Iterations of one run share the luck of that run, so splits show less noise than two runs would. The gate
widens its intervals by run-to-run noise for that reason, and the certificate says where that figure is from.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from statistics import fmean, median, median_low
from typing import Any

import numpy as np

from proctor.analysis.aa import GATE, Call, alarm_rate
from proctor.analysis.distributions import normal_quantile, t_quantile
from proctor.analysis.naive import TIME_RULES
from proctor.analysis.times import Noise, Samples, compare_times
from proctor.model.outcome import Blame
from proctor.quantity import significant
from proctor.runfolder.read import RunData
from proctor.verdicts.aa.certificate import NoiseCertificate, Power, Standing, Trial
from proctor.verdicts.aa.evidence import repeated
from proctor.verdicts.aa.loss import USEFUL, is_blind
from proctor.verdicts.aa.scores import LEVEL, Asked
from proctor.verdicts.aa.words import plural, rate, worst
from proctor.verdicts.compare.judge import default_noise
from proctor.verdicts.compare.results import ResultPoint
from proctor.verdicts.gate.evaluate import evaluate
from proctor.verdicts.gate.inputs import GateInput, input_of_run
from proctor.verdicts.gate.rules import read_rules
from proctor.verdicts.gate.verdict import GateVerdict

METRIC = "duration_s"
MARGIN = 0.05
VALUES_NEEDED = 6
"""A point with fewer iterations is too small to be split in halves."""
MOST_WORK = 40_000
"""Points × splits; a large sweep is split less often, and the certificate says how often."""
FACTORS = (0.5, 1, 2, 4, 8, 16)


def certify_times(
    data: RunData, asked: Asked, *, noise: Noise | None = None, repeats: Sequence[RunData] = ()
) -> NoiseCertificate:
    """Split the iterations, judge the pairs, and say what slowdown could be detected."""
    sweep = _Sweep(data, asked, noise)
    if not sweep.points:
        return sweep.nothing()
    trials = [sweep.splits(), *repeated(repeats, sweep.side, sweep.rule, noise=sweep.known)]
    return sweep.certificate(trials)


class _Sweep:
    """A run's timings and everything calculated from them."""

    def __init__(self, data: RunData, asked: Asked, noise: Noise | None) -> None:
        self.data, self.asked = data, asked
        self.margin = MARGIN if asked.margin is None else asked.margin
        self.rule = f"{METRIC} not slower than baseline by more than {100 * self.margin:.6g}%"
        self.rules = read_rules([self.rule])
        self.side = input_of_run(data, self.rules.metrics)
        self.noise = noise or default_noise(METRIC)
        self.known = {METRIC: noise} if noise else {}
        usable = [
            point for point in self.side.results.points if not point.failed and point.samples.get(METRIC)
        ]
        self.points = [point for point in usable if len(point.samples[METRIC]) >= VALUES_NEEDED]
        self.short = len(usable) - len(self.points)
        self.values = sum(len(point.samples[METRIC]) for point in self.points)
        self.count = median_low([len(point.samples[METRIC]) for point in self.points]) if self.points else 0

    def splits(self) -> Trial:
        """The iterations of each point, dealt to two sides at random."""
        splits = max(100, min(self.asked.simulations, MOST_WORK // len(self.points)))
        generator = np.random.default_rng([self.asked.seed, 3])
        calls: Counter[str] = Counter()
        naive: Counter[str] = Counter()
        for _ in range(splits):
            before, after = self._dealt(generator)
            calls[self._judged(before, after)] += 1
            for name, rule in TIME_RULES.items():
                naive[name] += rule(before, after, self.margin)
        return Trial(
            name="splits",
            how=f"{plural(splits, 'random split')} of the run's own iterations",
            per_side=f"{self.count // 2} iterations of {plural(len(self.points), 'point')}",
            gate=alarm_rate(GATE, calls[GateVerdict.REGRESSION], splits),
            calls={each.value: calls[each.value] for each in Call},
            naive=tuple(alarm_rate(name, naive[name], splits) for name in TIME_RULES),
        )

    def _dealt(self, generator: np.random.Generator) -> tuple[dict[str, tuple[float, ...]], ...]:
        sides: tuple[dict[str, tuple[float, ...]], ...] = ({}, {})
        for point in self.points:
            values = generator.permutation(np.asarray(point.samples[METRIC]))
            half = len(values) // 2
            sides[0][point.name] = tuple(values[:half].tolist())
            sides[1][point.name] = tuple(values[half : 2 * half].tolist())
        return sides

    def _judged(self, before: Mapping[str, Sequence[float]], after: Mapping[str, Sequence[float]]) -> str:
        sides = [self._side(before), self._side(after)]
        return evaluate(self.rules, sides[1], sides[0], noise=self.known, seed=self.asked.seed).verdict.value

    def _side(self, values: Mapping[str, Sequence[float]]) -> GateInput:
        made: list[ResultPoint] = [
            replace(point, samples={METRIC: tuple(values[point.name])}) for point in self.points
        ]
        return GateInput(results=replace(self.side.results, points=tuple(made)), trials=len(made))

    def drift(self) -> dict[str, Any]:
        """The later iterations of every point against its earlier ones."""
        ratios = []
        for point in self.points:
            values = point.samples[METRIC]
            half = len(values) // 2
            early, late = median(values[:half]), median(values[-half:])
            ratios += [late / early] if early > 0 and late > 0 else []
        if not ratios:
            return {}
        ratio = math.exp(fmean(map(math.log, ratios)))
        return {
            "ratio": ratio,
            "moved": abs(math.log(ratio)) > math.log1p(self.margin),
            "what": "median of late iterations over early ones",
        }

    def power(self) -> tuple[Power, ...]:
        """The slowdown at one point that is detected with 80 % probability, by iterations per point."""
        samples = [
            Samples(name=point.name, a=point.samples[METRIC], b=point.samples[METRIC])
            for point in self.points
        ]
        errors = [point.error for point in compare_times(samples, noise=self.noise).points]
        between = math.sqrt(2) * self.noise.sigma
        inside = median(math.sqrt(max(error**2 - between**2, 0.0)) for error in errors)
        certain = t_quantile(1 - (1 - LEVEL) / (2 * len(samples)), self.noise.df) + normal_quantile(0.8)
        whole_s = math.fsum(
            record.ended_at - record.started_at for trial in self.data.trials if (record := trial.counted)
        )
        rows = []
        for count in dict.fromkeys(max(2, round(factor * self.count)) for factor in FACTORS):
            error = math.hypot(inside * math.sqrt(self.count / count), between)
            found = max(math.expm1(min(certain * error, 50.0)), self.margin)
            total = count * len(self.points)
            rows.append(
                Power(count=count, detectable=found, total=total, hours=count / self.count * whole_s / 3600)
            )
        return tuple(rows)

    def nothing(self) -> NoiseCertificate:
        """No point has enough iterations."""
        blames = [point.blame for point in self.side.results.points if point.failed]
        broken = bool(blames) and all(each in {Blame.INFRASTRUCTURE, Blame.PROVIDER} for each in blames)
        why = f"no point has {VALUES_NEEDED} measured iterations"
        if broken and not self.short:
            return self._filled(
                Standing.INFRASTRUCTURE,
                "Nothing can be certified: infrastructure broke every trial.",
                ("fix what failed (see proctor show RUN and proctor doctor), then run again",),
            )
        return self._filled(
            Standing.TOO_LITTLE,
            f"Too little data to certify: {why}.",
            ("measure more often: --set iterations.measured=20",),
        )

    def certificate(self, trials: Sequence[Trial]) -> NoiseCertificate:
        """The verdict first, then the figures."""
        wolf = any(trial.gate.excessive for trial in trials)
        power = self.power()
        loss = next(row.detectable for row in power if row.count == max(2, self.count))
        assert loss is not None
        shown = worst(trials)
        blind = is_blind(loss, self.margin)
        size = f"{plural(self.count, 'iteration')} of {plural(len(self.points), 'point')}"
        which = "Quiet but blind: only a" if blind else "A"
        sentence = (
            f"{which} slowdown of {significant(100 * loss, 2)} % or more at one point would be detected "
            f"with 80 % probability at {size}; false alarms {rate(shown.gate)}."
        )
        if wolf:
            sentence = (
                f"Too many false alarms: the gate reports {rate(shown.gate)} of identical pairs as slower "
                f"({shown.how})."
            )
        return self._filled(
            Standing.FALSE_ALARMS if wolf else Standing.BLIND if blind else Standing.GOOD,
            sentence,
            self._next(wolf, power),
            trials=tuple(trials),
            detectable=loss,
            power=power,
            drift=self.drift(),
        )

    def _next(self, wolf: bool, power: Sequence[Power]) -> tuple[str, ...]:
        steps = []
        now = next(row.detectable for row in power if row.count == max(2, self.count))
        if not wolf and now is not None and is_blind(now, self.margin):
            seeing = (row for row in power if row.detectable and not is_blind(row.detectable, self.margin))
            more = next(seeing, None)
            steps.append(
                f"measure more often: {plural(more.count, 'iteration')} would detect "
                f"{significant(100 * USEFUL * self.margin, 2)} %"
                if more
                else "more iterations are not enough: run-to-run noise does not fall with them"
            )
        if wolf:
            steps.append(
                "do not gate on stored runs of this experiment; measure both versions together: proctor ab"
            )
        if math.isinf(self.noise.df):
            steps.append(
                "run the same code 4 more times: the store then has this machine's run-to-run noise, "
                f"which replaces the default of {significant(100 * self.noise.sigma, 2)} %"
            )
        steps.append("for smaller changes measure both versions in lockstep: proctor ab can detect 2 %")
        return tuple(steps)

    def _filled(
        self, standing: Standing, sentence: str, next_steps: tuple[str, ...], **more: Any
    ) -> NoiseCertificate:
        failed = [point for point in self.side.results.points if point.failed]
        notes = [f"{point.name} has no result: {point.failed}" for point in failed[:5]]
        if self.short:
            notes.append(
                f"{plural(self.short, 'point')} with fewer than {VALUES_NEEDED} iterations were left out"
            )
        contended = any(
            note.startswith(("contended", "timings are contended"))
            for trial in self.data.finished
            for note in (trial.counted.notes if trial.counted else ())
        )
        notes += ["timings are contended: trials ran in parallel"] if contended else []
        return NoiseCertificate(
            kind="experiment",
            run=self.side.label,
            run_id=self.data.info.id,
            digest=self.side.digest,
            standing=standing,
            sentence=sentence,
            next_steps=next_steps,
            metric=METRIC,
            margin=self.margin,
            level=LEVEL,
            claim="runs of this code on this machine",
            subjects=len(self.points),
            values=self.values,
            count=self.count,
            broken=self.side.broken,
            broken_share=self.side.broken / self.side.trials if self.side.trials else 0.0,
            noise={
                "sigma": self.noise.sigma,
                "df": self.noise.df,
                "source": self.noise.source,
            },
            simulations=self.asked.simulations,
            seed=self.asked.seed,
            notes=tuple(chain(notes)),
            **more,
        )
