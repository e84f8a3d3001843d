"""How often the gate is right: false alarms on identical sides, power on losses, beside the usual tests.

    python benchmarks/gate_quality.py                     the simulated suites
    python benchmarks/gate_quality.py real --runs 100     the same code run again and again on this machine

A false alarm is a verdict `regression` when nothing changed. Inconclusive is not one: it says that the data
cannot tell, and what would.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from simulated_studies import chances_of, rolled, shifted

from proctor.analysis.estimate import TaskRewards
from proctor.analysis.naive import SCORE_RULES, slower_by_eye, slower_by_welch
from proctor.analysis.power import Spread, detectable
from proctor.runfolder.read import RunData
from proctor.verdicts.compare.results import ArmRewards, ResultPoint, ResultSet
from proctor.verdicts.gate.evaluate import evaluate
from proctor.verdicts.gate.inputs import GateInput, input_of_run
from proctor.verdicts.gate.rules import RuleSet, read_rules
from proctor.verdicts.gate.verdict import GateVerdict

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
TASKS = 89
ROLLOUTS = (1, 5, 10)
CASES = {"identical": (0.0, 0.0), "tasks move, the mean does not": (0.0, 0.5), "−8 pp": (-0.08, 0.5)}
"""How much the mean chance to pass moves, and how differently the tasks do (as the spread of log odds)."""
SCORE = read_rules(["score not worse than baseline by more than 3pp at 95%"])
THESE = read_rules(["score not worse than baseline by more than 3pp at 95% for these tasks"])
TIMES = read_rules(["duration_s not slower than baseline by more than 5%"])
TAIL = read_rules(["p95 latency not slower than 5%"])


def suite(rewards: Array, errors: Sequence[int] | None = None) -> GateInput:
    lost = errors or [0] * len(rewards)
    tasks = tuple(
        TaskRewards(name=str(at), scored=tuple(row[: len(row) - gone]), errors=gone)
        for at, (row, gone) in enumerate(zip(rewards.tolist(), lost, strict=True))
    )
    arms = (ArmRewards(name="", tasks=tasks),)
    results = ResultSet(label="simulated", source="run", kind="task", arms=arms)
    return GateInput(results=results, trials=rewards.size, broken=sum(lost))


def points(values: dict[str, Sequence[float]], metric: str = "duration_s") -> GateInput:
    made = tuple(ResultPoint(name=name, samples={metric: tuple(each)}) for name, each in values.items())
    return GateInput(results=ResultSet(label="simulated", source="run", points=made), trials=len(made))


def verdict(rules: RuleSet, after: GateInput, before: GateInput) -> GateVerdict:
    return evaluate(rules, after, before).verdict


def scores(suites: int, seed: int) -> None:
    print(f"\n## Scores: {TASKS} tasks like Terminal-Bench 2, {suites} suites per cell, called worse (%)\n")
    print("Margin 3 pp; 1 / 5 / 10 rollouts per task and side.\n")
    print("| gate | " + " | ".join(CASES) + " |")
    print("|---" * (len(CASES) + 1) + "|")
    found: dict[str, Counter[tuple[int, str]]] = {}
    for rollouts in ROLLOUTS:
        for case, (gain, spread) in CASES.items():
            generator = np.random.default_rng([seed, rollouts, len(case)])
            for _ in range(suites):
                chances = shifted(generator, chances_of(generator, 0.5, 0.9, TASKS), 0.0, 0.5)
                moved = np.minimum(shifted(generator, chances, gain, spread), 1)
                a, b = rolled(generator, chances, rollouts), rolled(generator, moved, rollouts)
                for name, hit in _called(a, b):
                    found.setdefault(name, Counter())[rollouts, case] += hit
    for name, cells in found.items():
        columns = [
            " / ".join(f"{100 * cells[rollouts, case] / suites:.1f}" for rollouts in ROLLOUTS)
            for case in CASES
        ]
        print(f"| {name} | " + " | ".join(columns) + " |")


def _called(a: Array, b: Array) -> Iterator[tuple[str, bool]]:
    for name, test in SCORE_RULES.items():
        yield name, test(a, b) < 0
    before, after = suite(a), suite(b)
    like, these = (verdict(rules, after, before) for rules in (SCORE, THESE))
    yield "**proctor gate**, tasks like these", like is GateVerdict.REGRESSION
    yield "… passes", like is GateVerdict.PASS
    yield "… inconclusive", like is GateVerdict.INCONCLUSIVE
    yield "**proctor gate**, these tasks", these is GateVerdict.REGRESSION


def effects(_suites: int, _seed: int) -> None:
    print("\n## Smallest loss found 4 times in 5 (pp), by tasks and rollouts per side\n")
    print("| tasks | 1 | 3 | 5 | 10 | 20 |\n|---|---|---|---|---|---|")
    for tasks in (10, 20, 50, 89, 200):
        spread = Spread(within=0.118, effect=0.003, tasks=tasks)
        cells = [f"{100 * detectable(spread, rollouts):.1f}" for rollouts in (1, 3, 5, 10, 20)]
        print(f"| {tasks} | " + " | ".join(cells) + " |")


def broken(suites: int, seed: int) -> None:
    print(f"\n## Broken infrastructure: {TASKS} × 5, no change, {suites} suites, verdicts (%)\n")
    print(
        "| errors before / now | regression | infrastructure | inconclusive | pass |\n|---|---|---|---|---|"
    )
    for before, after in ((0.0, 0.0), (0.05, 0.05), (0.01, 0.05), (0.0, 0.2)):
        generator = np.random.default_rng([seed, round(100 * before), round(100 * after)])
        found: Counter[GateVerdict] = Counter()
        for _ in range(suites):
            chances = chances_of(generator, 0.5, 0.9, TASKS)
            sides = [
                suite(rolled(generator, chances, 5), generator.binomial(5, rate, TASKS).tolist())
                for rate in (before, after)
            ]
            found[verdict(SCORE, sides[1], sides[0])] += 1
        order = ("regression", "infrastructure", "inconclusive", "pass")
        cells = [f"{100 * found[GateVerdict(name)] / suites:.1f}" for name in order]
        print(f"| {before:.0%} / {after:.0%} | " + " | ".join(cells) + " |", flush=True)


def times(suites: int, seed: int) -> None:
    print(f"\n## Times: 10 points × 9 values, machine moves 5 %, {suites} pairs, called worse (%)\n")
    print(
        "| change | medians by eye, 5 % | Welch per point, 5 % | **proctor gate** | passes | inconclusive |"
    )
    print("|---|---|---|---|---|---|")
    for change in (1.0, 1.1, 1.25, 1.5):
        generator = np.random.default_rng([seed, round(100 * change)])
        by_eye = by_welch = 0
        found: Counter[GateVerdict] = Counter()
        for _ in range(suites):
            scale = change * math.exp(generator.normal(0, 0.05 * math.sqrt(2)))
            a = {str(at): np.exp(generator.normal(0, 0.01, 9)).tolist() for at in range(10)}
            b = {str(at): (scale * np.exp(generator.normal(0, 0.01, 9))).tolist() for at in range(10)}
            by_eye += slower_by_eye(a, b)
            by_welch += slower_by_welch(a, b)
            found[verdict(TIMES, points(b), points(a))] += 1
        shares = [by_eye, by_welch, *(found[GateVerdict(n)] for n in ("regression", "pass", "inconclusive"))]
        print(
            f"| {change - 1:+.0%} | " + " | ".join(f"{100 * each / suites:.1f}" for each in shares) + " |",
            flush=True,
        )


def tails(suites: int, seed: int) -> None:
    print(f"\n## p95 of one point, heavy tails, machine moves 5 %, {suites} pairs, worse (%)\n")
    print("| values | p95 by eye, 5 % | **proctor gate**, no change | +25 % | +50 % |\n|---|---|---|---|---|")
    for count in (24, 100, 1000):
        cells = []
        for change in (1.0, 1.25, 1.5):
            generator = np.random.default_rng([seed, count, round(100 * change)])
            hits = by_eye = 0
            for _ in range(suites):
                scale = change * math.exp(generator.normal(0, 0.05 * math.sqrt(2)))
                a = np.exp(0.3 * generator.standard_t(4, count))
                b = scale * np.exp(0.3 * generator.standard_t(4, count))
                by_eye += np.quantile(b, 0.95) > 1.05 * np.quantile(a, 0.95)
                hits += (
                    verdict(TAIL, points({"x": b.tolist()}), points({"x": a.tolist()}))
                    is GateVerdict.REGRESSION
                )
            if change == 1.0:
                cells.append(f"{100 * by_eye / suites:.1f}")
            cells.append(f"{100 * hits / suites:.1f}")
        print(f"| {count} | " + " | ".join(cells) + " |", flush=True)


def real(runs: int, seed: int) -> None:
    """Identical code run again and again, each run against the one before. A loss is made by scaling."""
    sides = list(_repeated(runs, seed))
    print(f"\n## Real timings: {len(sides)} runs of identical code on this machine, 4 points × 15 values\n")
    print(
        "Each run against the one before, noise learned from nothing (default); a change is a scaled copy.\n"
    )
    print(
        "| change | medians by eye, 5 % | Welch per point, 5 % | **proctor gate** | passes | inconclusive |"
    )
    print("|---|---|---|---|---|---|")
    for change in (1.0, 1.25, 1.5, 2.0):
        by_eye = by_welch = 0
        found: Counter[GateVerdict] = Counter()
        for before, after in pairwise(sides):
            moved = _scaled(after, change)
            a, b = (
                {point.name: point.samples["duration_s"] for point in side.results.points}
                for side in (before, moved)
            )
            by_eye += slower_by_eye(a, b)
            by_welch += slower_by_welch(a, b)
            found[verdict(TIMES, moved, before)] += 1
        pairs = len(sides) - 1
        shares = [by_eye, by_welch, *(found[GateVerdict(n)] for n in ("regression", "pass", "inconclusive"))]
        print(f"| {change - 1:+.0%} | " + " | ".join(f"{100 * each / pairs:.1f}" for each in shares) + " |")


def _scaled(side: GateInput, factor: float) -> GateInput:
    moved = tuple(
        replace(
            point, samples={name: tuple(factor * v for v in values) for name, values in point.samples.items()}
        )
        for point in side.results.points
    )
    return replace(side, results=replace(side.results, points=moved))


SPEC = """
experiment: sorting
sources: {experiments}
sweep: {{size: [200, 2000], order: [random, reversed]}}
iterations: {{warmup: 2, measured: 15}}
loops: auto
seed: {seed}
"""


def _repeated(runs: int, seed: int) -> Iterator[GateInput]:
    root = Path(__file__).parent.parent
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "repeated.yaml"
        spec.write_text(SPEC.format(experiments=root / "experiments.d", seed=seed))
        environment = {
            **os.environ,
            "PROCTOR_HOME": f"{folder}/home",
            "PROCTOR_OUTPUT_DIR": f"{folder}/results",
        }
        for _ in range(runs):
            subprocess.run(
                [sys.executable, "-m", "proctor.cli.main", "run", str(spec), "--json"],
                cwd=folder,
                env=environment,
                check=True,
                capture_output=True,
            )
        for path in sorted((Path(folder) / "results/repeated").iterdir()):
            yield input_of_run(RunData.from_folder(path), ["duration_s"])


SECTIONS: dict[str, Callable[[int, int], None]] = {
    "scores": scores,
    "effects": effects,
    "broken": broken,
    "times": times,
    "tails": tails,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", default=list(SECTIONS), help=f"{', '.join(SECTIONS)}, real")
    parser.add_argument("--suites", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=100, help="repeated runs of the section 'real'")
    parser.add_argument("--seed", type=int, default=20)
    chosen = parser.parse_args()
    for name in chosen.sections:
        started = time.process_time()
        if name == "real":
            real(chosen.runs, chosen.seed)
        else:
            SECTIONS[name](chosen.suites, chosen.seed)
        print(f"\n({time.process_time() - started:.0f} s of CPU)", flush=True)


if __name__ == "__main__":
    main()
