"""How suites of other tools fare in lockstep: identical revisions without a false verdict, a slowdown named.

    python benchmarks/foreign_suites.py PROJECT --pytest bench --python ENV --include NAME [--comparisons 30]

PROJECT is a checkout of the suite's project. Each benchmark is compared with itself, HEAD against HEAD, until
there were so many comparisons; a verdict 'slower' or 'faster' is a false one. Then each is compared once with
a side B that is made 5 % slower. Ends with 1 if a verdict was false or a slowdown was missed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path

from proctor.analysis.lockstep import Rules, Verdict, looks_for
from proctor.engine.ab import Asked
from proctor.engine.ab_run import Contest, run
from proctor.runs.suites import cache_of_setup, read_suite, request_from
from proctor.trial.lockstep.sides import SideRequest

SLOWDOWN = 0.05
FALSE = {Verdict.SLOWER, Verdict.FASTER}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("project", type=Path)
    parser.add_argument("--pytest", action="append", default=[])
    parser.add_argument("--asv", action="append", default=[])
    parser.add_argument("--python")
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("--comparisons", type=int, default=30)
    parser.add_argument("--margin", type=float, default=0.02)
    parser.add_argument("--pairs", type=int, default=20)
    return parser.parse_args()


def main() -> int:
    """Compare, count, tell."""
    given = arguments()
    python = given.python and str(Path(given.python).absolute())
    os.chdir(given.project)
    request = request_from(given.pytest, given.asv, python, given.include)
    assert request is not None, "name a suite with --pytest or --asv"
    suite = read_suite(request).timed()
    asked = Asked(rules=Rules(margin=given.margin, wall_margin=0.3, looks=looks_for(given.pairs)))

    def compared(slow: float) -> list[tuple[str, Verdict, float]]:
        contest = Contest(
            spec=suite.spec(),
            sources=(),
            a=SideRequest(revision="HEAD"),
            b=SideRequest(revision="HEAD"),
            slow=slow,
            project=suite.project,
            goes_on=True,
            tests_itself=True,
            python=suite.python,
        )
        found = run(contest, asked)
        for each in found.lost:
            print(f"not compared: {each}")
        return [(each.label, each.verdict, each.finding.change) for each in found.results]

    began, verdicts = time.monotonic(), Counter[str]()
    with cache_of_setup():
        while verdicts.total() < given.comparisons:
            verdicts.update(verdict.value for _, verdict, _ in compared(0.0))
            print(f"identical: {dict(verdicts)}  {time.monotonic() - began:.0f} s", flush=True)
        slowed = compared(SLOWDOWN)
    for label, verdict, change in slowed:
        print(f"{SLOWDOWN:.0%} slower: {verdict.value:<14} {change:+.1%}  {label}")
    wrong = sum(verdicts[each.value] for each in FALSE)
    missed = sum(verdict is not Verdict.SLOWER for _, verdict, _ in slowed)
    print(f"{wrong} of {verdicts.total()} verdicts false; {missed} of {len(slowed)} slowdowns missed")
    return int(bool(wrong or missed))


if __name__ == "__main__":
    sys.exit(main())
