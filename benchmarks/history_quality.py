"""How often `proctor history` reports a change that is none, and how often it finds one, on simulated series.

    python benchmarks/history_quality.py [--draws 1000] [--runs 30]

Series without a change: independent noise, autocorrelated noise, and a machine with two speeds that switches
at random, strictly, or in blocks of days. Noise is 2 % throughout; seeds are fixed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from proctor.analysis.change import change_points

Array = NDArray[np.float64]
Make = Callable[[np.random.Generator, int], Array]
NOISE = 0.02
STEP = 0.06


def independent(generator: np.random.Generator, count: int) -> Array:
    return generator.normal(0, NOISE, count)


def heavy(generator: np.random.Generator, count: int) -> Array:
    return generator.standard_t(3, count) * 0.6 * NOISE


def spikes(generator: np.random.Generator, count: int) -> Array:
    rare = (generator.random(count) < 0.08) * generator.exponential(0.2, count)
    return independent(generator, count) + rare


def correlated(rho: float) -> Make:
    """First-order autocorrelation; 2 % is the spread of the values themselves."""

    def make(generator: np.random.Generator, count: int) -> Array:
        fresh = generator.normal(0, NOISE, count)
        values = fresh.copy()
        for at in range(1, count):
            values[at] = rho * values[at - 1] + np.sqrt(1 - rho**2) * fresh[at]
        return values

    return make


def at_random(gap: float, share: float = 0.5) -> Make:
    """Each run is slow by chance."""

    def make(generator: np.random.Generator, count: int) -> Array:
        return independent(generator, count) + gap * (generator.random(count) < share)

    return make


def blocks(gap: float, days: int) -> Make:
    """The machine keeps a speed for exactly so many runs; the first block has begun at any of them."""

    def make(generator: np.random.Generator, count: int) -> Array:
        slow = ((np.arange(count) + generator.integers(0, 2 * days)) // days) % 2
        return independent(generator, count) + gap * slow

    return make


def stays(gap: float, days: float) -> Make:
    """The machine keeps a speed for so many runs on average, and may change after any of them."""

    def make(generator: np.random.Generator, count: int) -> Array:
        switched = generator.random(count) < 1 / days
        slow = (np.cumsum(switched) + generator.integers(0, 2)) % 2
        return independent(generator, count) + gap * slow

    return make


GAPS = (0.05, 0.1, 0.5)
UNCHANGED: dict[str, Make] = {
    "independent": independent,
    "heavy tails": heavy,
    "spikes": spikes,
    **{f"autocorrelation {rho}": correlated(rho) for rho in (0.2, 0.3, 0.4, 0.5)},
    **{f"two speeds {gap:.0%} apart, at random": at_random(gap) for gap in GAPS},
    **{f"two speeds {gap:.0%} apart, one run in five slow": at_random(gap, 0.2) for gap in GAPS},
    **{f"two speeds {gap:.0%} apart, in turn": blocks(gap, 1) for gap in GAPS},
    **{
        f"two speeds {gap:.0%} apart, blocks of {days}": blocks(gap, days)
        for gap in GAPS
        for days in (2, 3, 4, 5, 7)
    },
    **{
        f"two speeds {gap:.0%} apart, {days} runs on average": stays(gap, days)
        for gap in GAPS
        for days in (3, 4, 5)
    },
}
STEPPED: dict[str, Make] = {
    "independent": independent,
    "heavy tails": heavy,
    "spikes": spikes,
    "autocorrelation 0.3": correlated(0.3),
    "autocorrelation 0.5": correlated(0.5),
}


def false_changes(make: Make, count: int, draws: int, seed: int) -> float:
    """The share of unchanged series in which some change is reported."""
    generator = np.random.default_rng([seed, count])
    return sum(bool(_found(make(generator, count))) for _ in range(draws)) / draws


def found_steps(make: Make, count: int, at: int, draws: int, seed: int, step: float = STEP) -> float:
    """The share of series with one step in which a change is reported within two runs of it."""
    generator = np.random.default_rng([seed, count, at])
    hits = 0
    for _ in range(draws):
        logs = make(generator, count)
        logs[at:] += np.log1p(step)
        hits += any(abs(index - at) <= 2 for index in _found(logs))
    return hits / draws


def _found(logs: Array) -> list[int]:
    return [change.index for change in change_points(np.exp(logs).tolist()).changes]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--runs", type=int, nargs="+", default=[12, 30, 100])
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    print(f"False changes, % of {chosen.draws} series of so many runs\n")
    print(f"| noise | {' | '.join(map(str, chosen.runs))} |\n|---|{'---|' * len(chosen.runs)}")
    for name, make in UNCHANGED.items():
        cells = [f"{100 * false_changes(make, n, chosen.draws, chosen.seed):.1f}" for n in chosen.runs]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    places = (4, 5, 6, 8, 10, 15)
    print(f"\nA step of {STEP:.0%} in 30 runs, found (%), by the runs before it\n")
    print(f"| noise | {' | '.join(map(str, places))} |\n|---|{'---|' * len(places)}")
    for name, make in STEPPED.items():
        cells = [f"{100 * found_steps(make, 30, at, chosen.draws, chosen.seed):.0f}" for at in places]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    long = np.exp(at_random(0.5)(np.random.default_rng(chosen.seed), 1000)).tolist()
    started = time.process_time()
    for _ in range(5):
        change_points(long)
    print(f"\n1,000 runs, two speeds at random: {(time.process_time() - started) / 5 * 1000:.0f} ms of CPU")


if __name__ == "__main__":
    main()
