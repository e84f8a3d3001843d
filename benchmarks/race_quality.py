"""How often a race raises a false alarm and what it saves, on simulated suites; prints the docs' table."""

from __future__ import annotations

import argparse
import heapq
import time
from dataclasses import dataclass

import numpy as np

from proctor.analysis.claim import widest_claim
from proctor.analysis.compare import paired_scores
from proctor.analysis.interval import wilson
from proctor.analysis.verdict import Verdict
from proctor.model.outcome import from_reward
from proctor.model.record import AttemptRecord
from proctor.verdicts.race.design import ERROR, MARGIN, RacePair
from proctor.verdicts.race.prefix import Prefix

TASKS, ROLLOUTS, PARALLEL = 89, 5, 8
PASSING = (0.05, 0.10)
"""Margins of the races that stop for "no worse" too."""
EFFECTS = (0.0, -0.05, -0.07, -0.10, -0.14, -0.20)
Chances = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Raced:
    """One simulated race."""

    verdict: str
    begun: float
    """Share of the planned rollouts that had begun when it ended."""


def suite(generator: np.random.Generator, effect: float, tasks: int = TASKS) -> tuple[Chances, Chances]:
    """Chances to pass of both sides; the candidate differs on every task, on average by `effect`."""
    before = generator.beta(0.5 * 0.9, 0.5 * 0.9, tasks)
    if effect > 0:
        return before, 1 - (1 - before) * (1 - 2 * effect)
    return before, before * (1 + 2 * effect)


def traded(generator: np.random.Generator) -> tuple[Chances, Chances]:
    """The same mean, but half of the tasks gain what the other half loses."""
    before = generator.uniform(0.2, 0.8, TASKS)
    return before, before + np.where(np.arange(TASKS) % 2, 0.2, -0.2)


def race(
    generator: np.random.Generator, before: Chances, after: Chances, pass_within: float | None = None
) -> Raced:
    """In the scheduler's order: planned pairs, several at a time; failures end sooner than passes."""
    order = [(task, number) for number in range(ROLLOUTS) for task in generator.permutation(len(before))]
    pairs = [
        RacePair(task=str(task), rollout=number, baseline=f"a{task}/{number}", candidate=f"b{task}/{number}")
        for task, number in order
    ]
    prefix = Prefix(pairs, ERROR, pass_within=pass_within)
    keys = [key for pair in pairs for key in (pair.baseline, pair.candidate)]
    chances = [side[task] for task, _ in order for side in (before, after)]
    passed = (generator.random(len(keys)) < chances).astype(float)
    lasts = generator.exponential(1.0, len(keys)) * (0.3 + passed)
    running: list[tuple[float, int]] = []
    begun = 0
    while not prefix.is_decided and (running or begun < len(keys)):
        now = running[0][0] if running else 0.0
        while len(running) < PARALLEL and begun < len(keys):
            heapq.heappush(running, (now + lasts[begun], begun))
            begun += 1
        _, at = heapq.heappop(running)
        reward = float(passed[at])
        prefix.tell(
            AttemptRecord(
                key=keys[at],
                number=1,
                outcome=from_reward(reward),
                started_at=0.0,
                ended_at=0.0,
                reward=reward,
            )
        )
    return Raced(verdict(prefix), begun / len(keys))


def verdict(prefix: Prefix) -> str:
    """As `verdicts.race.judge` gives it where nothing was lost."""
    if prefix.is_worse:
        return "regression"
    if prefix.promise:
        return "pass" if prefix.promised else "inconclusive"
    sides: tuple[dict[str, list[float]], dict[str, list[float]]] = ({}, {})
    for each in prefix.judged:
        for rewards, reward in zip(sides, (each.baseline, each.candidate), strict=True):
            rewards.setdefault(each.pair.task, []).append(reward or 0.0)
    found = paired_scores(*sides, flips=100)  # with this many tasks the t test decides
    assert found is not None
    kept = found.judge(MARGIN) not in {Verdict.WORSE, Verdict.INCONCLUSIVE}
    return "pass" if kept else "inconclusive"


def row(name: str, raced: list[Raced]) -> str:
    """One line of the table."""
    count = len(raced)
    worse = [each for each in raced if each.verdict == "regression"]
    ends = wilson(len(worse) / count, count)
    passes = sum(each.verdict == "pass" for each in raced)
    stopped = f"{100 * np.mean([each.begun for each in worse]):.0f} %" if len(worse) > count / 10 else ""
    cells = (
        name,
        f"{100 * len(worse) / count:.1f} % ({100 * ends.low:.1f} to {100 * ends.high:.1f})",
        f"{100 * passes / count:.0f} %",
        f"{100 * (count - len(worse) - passes) / count:.0f} %",
        stopped,
        f"{100 * np.mean([each.begun for each in raced]):.0f} %",
    )
    return f"| {' | '.join(cells)} |"


def table(studies: int, seed: int) -> list[str]:
    """The table of docs/explanation/race-quality.md."""
    titles = ("true change", "regression", "pass", "inconclusive", "rollouts when regression", "rollouts")
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    for at, effect in enumerate(EFFECTS):
        generator = np.random.default_rng([seed, at])
        raced = [race(generator, *suite(generator, effect)) for _ in range(studies)]
        lines.append(row(f"{100 * effect:+.0f} pp".replace("-", "−") if effect else "none", raced))
    generator = np.random.default_rng([seed, len(EFFECTS)])
    raced = [race(generator, *traded(generator)) for _ in range(studies)]
    return [*lines, row("none in the mean: half of the tasks +20 pp, half −20 pp", raced)]


def passing_table(studies: int, seed: int) -> list[str]:
    """The table of races that stop for "no worse": the loss at the margin is the one that must not pass."""
    titles = ("tasks", "margin", "true change", "regression", "pass", "pass, fixed design", "rollouts")
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    rows = [
        (tasks, margin, effect)
        for tasks in (TASKS, 20)
        for margin in PASSING
        for effect in (0.05, 0.0, -margin)
    ]
    for at, (tasks, margin, effect) in enumerate(rows):
        generator = np.random.default_rng([seed, 100 + at])
        suites = [suite(generator, effect, tasks) for _ in range(studies)]
        raced = [race(generator, *each, pass_within=margin) for each in suites]
        fixed = [_passes_fixed(generator, *each, margin) for each in suites]
        worse = sum(each.verdict == "regression" for each in raced)
        passed = sum(each.verdict == "pass" for each in raced)
        ends = wilson(passed / studies, studies)
        cells = (
            str(tasks),
            f"{100 * margin:.0f} pp",
            f"{100 * effect:+.0f} pp".replace("-", "−") if effect else "none",
            f"{100 * worse / studies:.1f} %",
            f"{100 * passed / studies:.1f} % ({100 * ends.low:.1f} to {100 * ends.high:.1f})",
            f"{100 * sum(fixed) / studies:.1f} %",
            f"{100 * np.mean([each.begun for each in raced]):.0f} %",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _passes_fixed(generator: np.random.Generator, before: Chances, after: Chances, margin: float) -> bool:
    """Whether all rollouts of both sides, compared once at the end, exclude a loss of the margin."""
    sides = [
        {
            str(task): list((generator.random(ROLLOUTS) < chance).astype(float))
            for task, chance in enumerate(side)
        }
        for side in (before, after)
    ]
    found = paired_scores(sides[0], sides[1], flips=100)
    assert found is not None
    return found.interval(widest_claim(len(before))).low >= -margin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=1000, help="suites per effect")
    parser.add_argument("--seed", type=int, default=28)
    chosen = parser.parse_args()
    started = time.process_time()
    print(
        f"\n## Races, {TASKS} tasks × {ROLLOUTS} rollouts of each side, {PARALLEL} at a time, "
        f"{chosen.studies} suites per row\n"
    )
    print("\n".join(table(chosen.studies, chosen.seed)))
    print('\n## Races that stop for "no worse" too\n')
    print("\n".join(passing_table(max(1, chosen.studies // 5), chosen.seed)))
    print(f"\n({time.process_time() - started:.0f} s of CPU)")


if __name__ == "__main__":
    main()
