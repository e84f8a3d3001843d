"""What the statistics promise, checked on simulated studies with known truth; prints the docs' tables."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from proctor.analysis.change import change_points
from proctor.analysis.compare import paired_scores
from proctor.analysis.estimate import score
from proctor.analysis.naive import SCORE_RULES
from proctor.analysis.power import Spread, detectable
from proctor.analysis.times import Noise, Samples, compare_times
from proctor.analysis.verdict import Verdict

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
SHAPES = ((5, 1), (5, 3), (5, 5), (10, 1), (10, 3), (20, 1), (20, 3), (89, 1), (89, 5))
POPULATIONS = {
    "drawn for each suite": None,
    "even, U-shaped": (0.50, 1.0),
    "like Terminal-Bench 2": (0.45, 0.9),
    "middling": (0.40, 4.0),
    "easy": (0.80, 1.0),
    "hard": (0.15, 2.0),
}
"""Mean and weight of the beta distribution from which each task's chance to pass is drawn."""


def population(generator: np.random.Generator, shape: tuple[float, float] | None) -> tuple[float, float]:
    if shape is not None:
        return shape
    return generator.uniform(0.05, 0.95), math.exp(generator.uniform(math.log(0.4), math.log(10)))


def chances_of(generator: np.random.Generator, mean: float, weight: float, tasks: int) -> Array:
    return generator.beta(mean * weight, (1 - mean) * weight, tasks)


def rolled(generator: np.random.Generator, chances: Array, rollouts: int) -> Array:
    return (generator.random((len(chances), rollouts)) < chances[:, None]).astype(float)


def by_task(rewards: Array) -> dict[str, list[float]]:
    return {str(at): row for at, row in enumerate(rewards.tolist())}


def coverage(suites: int, seed: int) -> None:
    print(f"\n## Coverage of 95 % intervals, {suites} suites per cell: tasks like these / these tasks (%)\n")
    print("| difficulty of tasks | " + " | ".join(f"{m}×{k}" for m, k in SHAPES) + " |")
    print("|---|" + "---|" * len(SHAPES))
    for name, shape in POPULATIONS.items():
        cells = []
        for tasks, rollouts in SHAPES:
            generator = np.random.default_rng([seed, tasks, rollouts])
            like = these = 0
            for _ in range(suites):
                mean, weight = population(generator, shape)
                chances = chances_of(generator, mean, weight, tasks)
                found = score(rolled(generator, chances, rollouts).tolist())
                assert found is not None
                assert found.tasks_like_these is not None
                like += found.tasks_like_these.contains(mean)
                these += found.these_tasks.contains(float(chances.mean()))
            cells.append(f"{100 * like / suites:.1f} / {100 * these / suites:.1f}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def paired(a: Array, b: Array) -> bool:
    found = paired_scores(by_task(a), by_task(b))
    assert found is not None
    return found.p_value <= 0.05


def _differs(rule: Callable[[Array, Array], int], a: Array, b: Array) -> bool:
    return rule(a, b) != 0


TESTS: dict[str, Callable[[Array, Array], bool]] = {
    **{name: partial(_differs, rule) for name, rule in SCORE_RULES.items()},
    "paired on task means": paired,
}


def shifted(generator: np.random.Generator, chances: Array, gain: float, spread: float) -> Array:
    """Each task's chance after a change, given a mean chance of one half: `gain` on average, not for each."""
    clipped = np.clip(chances, 1e-6, 1 - 1e-6)
    logits = np.log(clipped / (1 - clipped)) + generator.normal(0, spread, len(chances))
    return np.asarray((1 + 2 * gain) / (1 + np.exp(-logits)))


def comparisons(studies: int, seed: int) -> None:
    print(f"\n## 89 tasks like Terminal-Bench 2, {studies} studies per cell: share called different (%)\n")
    print("Effects differ between tasks (spread of 0.8 on the logit); they are 0 or -8 pp on average.\n")
    print("| test | rollouts | no difference | -8 pp |")
    print("|---|---|---|---|")
    for name, test in TESTS.items():
        for rollouts in (1, 5, 10):
            shares = []
            for gain in (0.0, -0.08):
                generator = np.random.default_rng([seed, rollouts])
                hits = 0
                for _ in range(studies):
                    chances = chances_of(generator, 0.5, 0.9, 89)
                    after = shifted(generator, chances, gain, 0.8)
                    hits += test(rolled(generator, chances, rollouts), rolled(generator, after, rollouts))
                shares.append(f"{100 * hits / studies:.1f}")
            print(f"| {name} | {rollouts} | " + " | ".join(shares) + " |", flush=True)


def reach(studies: int, seed: int) -> None:
    print(f"\n## Smallest difference found with 80 % power, and how often {studies} studies found it\n")
    print("| tasks | rollouts | detectable (pp) | found (%) |\n|---|---|---|---|")
    for tasks in (20, 89):
        for rollouts in (1, 5, 10, 20):
            generator = np.random.default_rng([seed, tasks, rollouts])
            chances = np.clip(chances_of(generator, 0.45, 4.0, tasks), 0.02, 0.7)
            spread = Spread(within=float(np.mean(chances * (1 - chances))), tasks=tasks)
            gain = detectable(spread, rollouts)
            hits = sum(
                paired(
                    rolled(generator, chances, rollouts),
                    rolled(generator, np.clip(chances + gain, 0, 1), rollouts),
                )
                for _ in range(studies)
            )
            print(f"| {tasks} | {rollouts} | {100 * gain:.1f} | {100 * hits / studies:.0f} |", flush=True)


def history_noise(generator: np.random.Generator, kind: str, count: int) -> Array:
    noise = generator.normal(0, 0.02, count)
    if kind == "heavy tails":
        noise = generator.standard_t(3, count) * 0.012
    if kind == "spikes":
        noise += (generator.random(count) < 0.08) * generator.exponential(0.2, count)
    if kind == "autocorrelated (0.3)":
        for at in range(1, count):
            noise[at] += 0.3 * noise[at - 1]
    return noise


def changes(studies: int, seed: int) -> None:
    print(
        f"\n## Change points, noise 2 %, {studies} histories each: false alarms / +6 % found in place (%)\n"
    )
    print("| noise | 12 runs | 30 runs | 100 runs |\n|---|---|---|---|")
    for kind in ("normal", "heavy tails", "spikes", "autocorrelated (0.3)"):
        cells = []
        for count in (12, 30, 100):
            generator = np.random.default_rng([seed, count])
            alarms = hits = 0
            for _ in range(studies):
                alarms += bool(change_points(np.exp(history_noise(generator, kind, count)).tolist()).changes)
                logs = history_noise(generator, kind, count)
                logs[count // 2 :] += 0.06
                found = change_points(np.exp(logs).tolist()).changes
                hits += len(found) == 1 and abs(found[0].index - count // 2) <= 2
            cells.append(f"{100 * alarms / studies:.1f} / {100 * hits / studies:.0f}")
        print(f"| {kind} | " + " | ".join(cells) + " |", flush=True)


def stored_times(studies: int, seed: int) -> None:
    print(f"\n## Stored times, 10 points × 9 values, {studies} pairs of runs, true run-to-run noise 5 %\n")
    print("| believed noise | true change | worse (%) | no worse (%) | inconclusive (%) | settles |")
    print("|---|---|---|---|---|---|")
    for believed in (0.0, 0.05):
        for change in (1.0, 1.1, 1.5):
            generator = np.random.default_rng([seed, round(100 * change)])
            verdicts, settles = [], 0.0
            for _ in range(studies):
                scale = change * math.exp(generator.normal(0, 0.05 * math.sqrt(2)))
                points = [
                    Samples(
                        name=str(at),
                        a=tuple(np.exp(generator.normal(0, 0.01, 9)).tolist()),
                        b=tuple((scale * np.exp(generator.normal(0, 0.01, 9))).tolist()),
                    )
                    for at in range(10)
                ]
                found = compare_times(points, noise=Noise(sigma=believed, source="simulated"))
                verdicts.append(found.verdict)
                settles = found.settles
            worse = verdicts.count(Verdict.WORSE)
            doubt = verdicts.count(Verdict.INCONCLUSIVE)
            shares = (worse, studies - worse - doubt, doubt)
            cells = " | ".join(f"{100 * each / studies:.1f}" for each in shares)
            print(f"| {believed:.0%} | {change - 1:+.0%} | {cells} | {settles:.0%} |", flush=True)


SECTIONS: dict[str, tuple[Callable[[int, int], None], int]] = {
    "coverage": (coverage, 2000),
    "comparisons": (comparisons, 1000),
    "reach": (reach, 400),
    "changes": (changes, 1000),
    "times": (stored_times, 1000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", default=list(SECTIONS), help=", ".join(SECTIONS))
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full number of studies")
    parser.add_argument("--seed", type=int, default=20)
    chosen = parser.parse_args()
    for name in chosen.sections:
        section, studies = SECTIONS[name]
        started = time.process_time()
        section(max(20, round(studies * chosen.scale)), chosen.seed)
        print(f"\n({time.process_time() - started:.0f} s of CPU)")


if __name__ == "__main__":
    main()
