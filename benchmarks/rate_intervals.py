"""How often the intervals "for these tasks" contain the truth, over a grid of suites; prints the docs' table.

A cell is a number of tasks, a number of rollouts per task and a chance to pass for each task on each side.
One task is enumerated exactly, more are drawn. The arithmetic is repeated with arrays here, because the cells
take millions of intervals; before the grid starts it is held against `paired_scores` and `score` themselves.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv
from scipy.stats import binom

from proctor.analysis.compare import paired_scores
from proctor.analysis.estimate import score
from proctor.analysis.interval import CAUTION, PRIOR_EVENTS

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Limits = tuple[Array, Array]
TASKS = (1, 2, 3, 5, 10, 20)
ROLLOUTS = (5, 10, 20, 50)
SAME = ((0.0, 0.0), (0.05, 0.05), (0.1, 0.1), (0.5, 0.5), (0.9, 0.9), (1.0, 1.0))
SMALL = ((0.0, 0.05), (0.05, 0.1), (0.1, 0.2), (0.5, 0.55), (0.5, 0.4), (0.9, 0.95), (0.9, 0.8), (1.0, 0.95))
LARGE = ((0.0, 0.5), (0.05, 0.95), (0.1, 0.6), (0.5, 0.9), (0.5, 0.0), (0.9, 0.4), (1.0, 0.5), (1.0, 0.0))
LOW, HIGH = 0.93, (0.94, 0.98)
"""What every cell and what their average must reach."""
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Cell:
    """One truth: the chances of each task on both sides, and how many rollouts each has."""

    name: str
    before: Array
    after: Array
    sizes_a: Array
    sizes_b: Array

    @property
    def truth(self) -> float:
        return float((self.after - self.before).mean())


def chances(tasks: int) -> Iterator[tuple[str, Array, Array]]:
    """Suites of equal tasks, and suites whose tasks differ."""
    for before, after in (*SAME, *SMALL, *LARGE):
        yield f"{before:g} → {after:g}", np.full(tasks, before), np.full(tasks, after)
    if tasks == 1:
        return
    ramp = np.linspace(0.05, 0.95, tasks)
    yield "0.05 … 0.95, no change", ramp, ramp
    yield "0.05 … 0.95, +0.3", ramp, np.minimum(1, ramp + 0.3)
    yield "0.05 … 0.95 turned around", ramp, ramp[::-1]
    odd = (np.arange(tasks) % 2).astype(float)
    mixed = 0.05 + 0.9 * odd
    yield "0.05 and 0.95, no change", mixed, mixed
    yield "0.05 and 0.95, halved", mixed, mixed / 2
    yield "0 and 1, no change", odd, odd
    yield "0 and 1, halved", odd, odd / 2
    yield "0 and 1, exchanged", odd, 1 - odd
    first = np.eye(tasks)[0]
    yield "one at 0.5, others at 0", first / 2, first / 2
    yield "one at 0.5, others at 1", 1 - first / 2, 1 - first / 2
    yield "one from 0.1 to 0.9, others at 1", 1 - 0.9 * first, 1 - 0.1 * first
    yield "one from 0 to 1, others at 0", 0 * first, first


def sizes(tasks: int) -> Iterator[tuple[str, Array, Array]]:
    """Rollouts per task; those that were lost or repeated make them unequal."""
    for rollouts in ROLLOUTS:
        yield f"{rollouts}", np.full(tasks, float(rollouts)), np.full(tasks, float(rollouts))
    if tasks > 1:
        lost = np.resize(np.array([5.0, 4, 3, 2, 5]), tasks), np.resize(np.array([3.0, 5, 2, 4, 5]), tasks)
        yield "2 to 5", *lost
        uneven = np.resize(np.array([5.0, 10, 20, 50]), tasks), np.resize(np.array([50.0, 20, 10, 5]), tasks)
        yield "5 to 50", *uneven
    else:
        yield "5 and 50", np.array([5.0]), np.array([50.0])


def cells(tasks: int, sizes_a: Array, sizes_b: Array) -> Iterator[Cell]:
    for name, before, after in chances(tasks):
        yield Cell(name, before, after, sizes_a, sizes_b)


def worth(passed: Array, sizes: Array) -> tuple[Array, Array]:
    """`rollouts_worth` for many suites at once, one suite per row."""
    shares = passed / sizes
    mean = shares.mean(axis=1)
    extreme, slots = mean * (1 - mean), float((1 / sizes).sum())
    inside = (shares * (1 - shares) / (sizes - 1)).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(extreme > 0, np.clip(inside / (extreme * slots), 0, 1), 1.0)
    degrees = slots**2 / float((1 / (sizes**2 * (sizes - 1))).sum())
    known = degrees * np.minimum(1, 4 * extreme)
    coins = len(sizes) ** 2 / slots * (known + PRIOR_EVENTS) / (known * share + PRIOR_EVENTS)
    return mean, coins


def limits(mean: Array, coins: Array) -> Limits:
    """`beta_limits` for many at once."""
    passed, failed = mean * coins, (1 - mean) * coins
    low = np.where(passed > 0, betaincinv(passed + CAUTION, failed + 1 - CAUTION, 0.025), 0.0)
    high = np.where(failed > 0, betaincinv(passed + 1 - CAUTION, failed + CAUTION, 0.975), 1.0)
    return np.minimum(low, mean), np.maximum(high, mean)


def interval(passed_a: Array, sizes_a: Array, passed_b: Array, sizes_b: Array) -> Limits:
    """`difference_interval` for many at once."""
    (mean_a, coins_a), (mean_b, coins_b) = worth(passed_a, sizes_a), worth(passed_b, sizes_b)
    (low_a, high_a), (low_b, high_b) = limits(mean_a, coins_a), limits(mean_b, coins_b)
    difference = mean_b - mean_a
    low = difference - np.hypot(mean_b - low_b, high_a - mean_a)
    high = difference + np.hypot(high_b - mean_b, mean_a - low_a)
    return np.maximum(-1, low), np.minimum(1, high)


def held_against_proctor(suites: int, seed: int) -> None:
    """The arrays above must give what Proctor prints."""
    generator = np.random.default_rng(seed)
    for _ in range(suites):
        tasks = int(generator.integers(1, 12))
        counts = [generator.integers(2, 30, tasks).astype(float) for _ in range(2)]
        passed = [
            generator.binomial(size.astype(int), generator.random(tasks)).astype(float) for size in counts
        ]
        sides = [
            {
                str(at): [1.0] * int(x) + [0.0] * int(n - x)
                for at, (x, n) in enumerate(zip(each, size, strict=True))
            }
            for each, size in zip(passed, counts, strict=True)
        ]
        found = paired_scores(sides[0], sides[1], flips=1)
        low, high = interval(passed[0][None, :], counts[0], passed[1][None, :], counts[1])
        assert found is not None
        assert abs(found.these_tasks.low - low[0]) < TOLERANCE
        assert abs(found.these_tasks.high - high[0]) < TOLERANCE
        alone = score(list(sides[0].values()))
        assert alone is not None
        one_low, one_high = limits(*worth(passed[0][None, :], counts[0]))
        assert abs(alone.these_tasks.low - one_low[0]) < TOLERANCE
        assert abs(alone.these_tasks.high - one_high[0]) < TOLERANCE


def contains(ends: Limits, truth: float) -> Array:
    return ((ends[0] <= truth + TOLERANCE) & (truth <= ends[1] + TOLERANCE)).astype(float)


def enumerated(cell: Cell) -> tuple[float, float]:
    """Coverage of the difference and of A's own rate, exactly: every pair of counts with its probability."""
    count_a, count_b = int(cell.sizes_a[0]), int(cell.sizes_b[0])
    grid = np.indices((count_a + 1, count_b + 1)).reshape(2, -1).astype(float)
    chance = binom.pmf(grid[0], count_a, cell.before[0]) * binom.pmf(grid[1], count_b, cell.after[0])
    ends = interval(grid[0][:, None], cell.sizes_a, grid[1][:, None], cell.sizes_b)
    alone = limits(*worth(grid[0][:, None], cell.sizes_a))
    truth = float(cell.before[0])
    return float(chance @ contains(ends, cell.truth)), float(chance @ contains(alone, truth))


def drawn(cell: Cell, draws: int, generator: np.random.Generator) -> tuple[float, float]:
    shape = (draws, len(cell.before))
    passed_a = generator.binomial(cell.sizes_a.astype(int), cell.before, shape).astype(float)
    passed_b = generator.binomial(cell.sizes_b.astype(int), cell.after, shape).astype(float)
    ends = interval(passed_a, cell.sizes_a, passed_b, cell.sizes_b)
    alone = limits(*worth(passed_a, cell.sizes_a))
    mean = float(cell.before.mean())
    return float(contains(ends, cell.truth).mean()), float(contains(alone, mean).mean())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=10_000, help="suites per cell of more than one task")
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--worst", type=int, default=8, help="how many of the worst cells are listed")
    asked = parser.parse_args()
    started = time.perf_counter()
    held_against_proctor(200, asked.seed)
    found: list[tuple[float, str]] = []
    rates: list[tuple[float, str]] = []
    print(
        "Coverage of the 95 % interval of a difference for these tasks: lowest cell / average of cells (%)\n"
    )
    print("| tasks | 5 rollouts | 10 | 20 | 50 | 2 to 5 | 5 to 50 |\n|---|---|---|---|---|---|---|")
    for tasks in TASKS:
        row = []
        for label, sizes_a, sizes_b in sizes(tasks):
            generator = np.random.default_rng([asked.seed, tasks, *map(int, sizes_a)])
            group = []
            for cell in cells(tasks, sizes_a, sizes_b):
                both, alone = enumerated(cell) if tasks == 1 else drawn(cell, asked.draws, generator)
                where = f"{tasks} × {label}, {cell.name}"
                group.append(both)
                found.append((both, where))
                rates.append((alone, where))
            row.append(f"{100 * min(group):.1f} / {100 * np.mean(group):.1f}")
        row.insert(4, "") if tasks == 1 else None
        print(f"| {tasks} | " + " | ".join(row) + " |", flush=True)
    bad = told("difference", found, asked.worst)
    told("single rate, the same cells", rates, asked.worst)
    print(f"\n{time.perf_counter() - started:.0f} s")
    return 1 if bad else 0


def told(what: str, found: list[tuple[float, str]], worst: int) -> int:
    """Print the summary of a kind of interval; how many promises it breaks."""
    values = np.array([each for each, _ in found])
    average, below = float(values.mean()), int((values < LOW).sum())
    print(
        f"\n{what}: {len(found)} cells, average {100 * average:.2f} %, lowest {100 * values.min():.1f} %, ",
        end="",
    )
    print(f"{below} below {100 * LOW:g} %")
    for each, where in sorted(found)[:worst]:
        print(f"  {100 * each:.2f} %  {where}")
    return below + (not HIGH[0] <= average <= HIGH[1])


if __name__ == "__main__":
    raise SystemExit(main())
