"""How often `proctor time` and hyperfine are right about two commands, and what that costs.

The same pairs of commands are given to both tools in turn: ones that do the same and differ by an argument of
random length that is not used, where any difference is false, and ones of which the second does 5 % more
work. hyperfine gives times and no verdict, so its runs are judged by Welch's test at 5 %. CPU is that of the
tool with everything it started.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median, variance

from proctor.analysis.distributions import two_sided_t

LOOPS = 400_000


def work(loops: int) -> str:
    return f"awk 'BEGIN{{for(i=0;i<{loops};i++)s+=i}}'"


def proctor(a: str, b: str, folder: Path) -> str:
    words = [sys.executable, "-m", "proctor.cli.main", "time", "-N", a, b, "--export", str(folder / "p.json")]
    subprocess.run(words, stdout=subprocess.DEVNULL, check=False, cwd=folder)
    return str(json.loads((folder / "p.json").read_text())["comparisons"][0]["verdict"])


def hyperfine(a: str, b: str, folder: Path, runs: int) -> str:
    words = ["hyperfine", "-N", "-w", "1", "-r", str(runs), "--export-json", str(folder / "h.json"), a, b]
    subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, cwd=folder)
    one, two = (each["times"] for each in json.loads((folder / "h.json").read_text())["results"])
    if welch(one, two) >= 0.05:
        return "inconclusive"
    return "slower" if fmean(two) > fmean(one) else "faster"


def welch(a: list[float], b: list[float]) -> float:
    parts = [variance(each) / len(each) for each in (a, b)]
    degrees = sum(parts) ** 2 / sum(part**2 / (len(a) - 1) for part in parts)
    return two_sided_t((fmean(b) - fmean(a)) / sum(parts) ** 0.5, round(degrees))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=6, help="comparisons of each kind by each tool")
    parser.add_argument("--runs", type=int, default=20, help="runs of each command by hyperfine")
    parser.add_argument("--slower", type=float, default=0.05, help="how much more the second command does")
    asked = parser.parse_args()
    if not shutil.which("hyperfine"):
        parser.error("hyperfine is not installed")
    tools: dict[str, Callable[[str, str, Path], str]] = {
        "proctor time": proctor,
        "hyperfine + Welch": lambda a, b, folder: hyperfine(a, b, folder, asked.runs),
    }
    found: dict[str, dict[str, list[str]]] = {name: {"same": [], "slower": []} for name in tools}
    costs: dict[str, list[tuple[float, float]]] = {name: [] for name in tools}
    first = work(LOOPS)
    with tempfile.TemporaryDirectory() as place:
        for _ in range(asked.rounds):
            unused = f"{first} {'x' * random.randint(1, 200)}"
            for kind, second in (("same", unused), ("slower", work(round(LOOPS * (1 + asked.slower))))):
                for name, tool in tools.items():
                    began, spent = time.perf_counter(), cpu_s()
                    found[name][kind].append(tool(first, second, Path(place)))
                    costs[name].append((cpu_s() - spent, time.perf_counter() - began))
    print(f"{asked.rounds} comparisons of each kind; +{asked.slower:.0%} is the second kind")
    print(f"{'':20} false  found  wrong sign  CPU s  s")
    for name in tools:
        false = sum(each in {"slower", "faster"} for each in found[name]["same"])
        right, wrong = (found[name]["slower"].count(word) for word in ("slower", "faster"))
        cpu, wall = (median(column) for column in zip(*costs[name], strict=True))
        print(f"{name:20} {false:5}  {right:5}  {wrong:10}  {cpu:5.1f}  {wall:.1f}")
    return 0


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main())
