"""Whether the loss that a noise certificate claims is detected as often as it says, on suites of known truth.

    python benchmarks/certificate_power.py [--pilots 12] [--pairs 60]

A pilot is drawn from known chances of passing, and of losing attempts to errors in a quarter of the tasks.
The claim made from it is tried on new pairs from the same truth: each task loses the same share, or a few
tasks lose everything.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from proctor.analysis.aa import Call, Pair, Urns, detectable_loss, judge_pair
from proctor.analysis.estimate import TaskRewards

Array = NDArray[np.float64]
MARGIN = 0.03


def run(
    generator: np.random.Generator, chances: Array, broken: Array, rollouts: int
) -> tuple[TaskRewards, ...]:
    """One run of the suite; of each task at least one attempt is scored."""
    lost = np.minimum(generator.binomial(rollouts, broken), rollouts - 1).tolist()
    return tuple(
        TaskRewards(
            name=f"task-{at}",
            scored=tuple((generator.random(rollouts - gone) < chance).astype(float).tolist()),
            errors=gone,
        )
        for at, (chance, gone) in enumerate(zip(chances, lost, strict=True))
    )


def after(generator: np.random.Generator, chances: Array, loss: float, *, concentrated: bool) -> Array:
    """The chances once the suite has lost that much."""
    loss = min(loss, float(chances.mean()))
    if not concentrated:
        return np.asarray(chances * (1 - loss / chances.mean()))
    order = generator.permutation(chances.size)
    before = np.cumsum(chances[order]) - chances[order]
    left = chances.copy()
    left[order] *= 1 - np.clip((loss * chances.size - before) / np.maximum(chances[order], 1e-12), 0, 1)
    return left


def study(tasks: int, rollouts: int, errors: float, pilots: int, pairs: int) -> str:
    """One row: mean claims, and how often each loss was detected."""
    cases = (("even", False), ("claim", False), ("claim", True), ("even", True))
    hits = dict.fromkeys(cases, 0)
    claims = []
    for seed in range(pilots):
        generator = np.random.default_rng([seed, tasks, rollouts])
        chances = generator.beta(1.5, 1, tasks)
        broken = np.where(generator.random(tasks) < 0.25, errors, 0.0)
        urns = Urns(run(generator, chances, broken, rollouts))
        found = [
            detectable_loss(urns, rollouts, MARGIN, pairs=100, seed=seed, concentrated=few)
            for few in (False, True)
        ]
        if found[0] is None or found[1] is None:
            continue
        losses = {"even": found[0], "claim": max(found[0], found[1])}
        claims.append(losses)
        for name, few in cases:
            for number in range(pairs):
                again = np.random.default_rng([seed, number, 9])
                changed = after(again, chances, losses[name], concentrated=few)
                pair = Pair(run(again, chances, broken, rollouts), run(again, changed, broken, rollouts))
                hits[name, few] += judge_pair(pair, MARGIN) is Call.REGRESSION
    means = [100 * float(np.mean([each[name] for each in claims])) for name in ("even", "claim")]
    shares = [100 * hits[case] / (pairs * max(len(claims), 1)) for case in cases]
    cells = [f"{tasks} × {rollouts}", f"{errors:.0%}", *(f"{each:.0f}" for each in (*means, *shares))]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pilots", type=int, default=12)
    parser.add_argument("--pairs", type=int, default=60)
    chosen = parser.parse_args()
    names = (
        "suite",
        "errors in a quarter of the tasks",
        "claim for an even loss (pp)",
        "claim (pp)",
        "even loss of the first claim found (%)",
        "even loss of the claim found (%)",
        "concentrated loss of the claim found (%)",
        "concentrated loss of the first claim found (%)",
    )
    print(f"| {' | '.join(names)} |")
    print(f"|{'---|' * 8}")
    for tasks, rollouts in ((20, 5), (40, 10)):
        for errors in (0.0, 0.3):
            print(study(tasks, rollouts, errors, chosen.pilots, chosen.pairs), flush=True)


if __name__ == "__main__":
    main()
