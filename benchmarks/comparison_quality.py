"""How often comparison tools are right, side by side, while another program loads every core.

Identical code must be called different by none of them; a version that does 5 % or 2 % more of the same work
should be found. Every tool gets the same code in the same moments, in turn. The functions of `--shapes` wait,
start a child process or use threads; lockstep pairs alone are asked about those.

    python benchmarks/comparison_quality.py --rounds 100 --peer-rounds 20
    python benchmarks/comparison_quality.py --shapes all --rounds 20
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev, variance
from typing import Any

from comparison_sources import ASV, EXPERIMENT, PYPERF, PYTEST, SCRIPT, WORK

CASES = {"identical": (20, 20), "+5 %": (20, 21), "+2 %": (50, 51)}
"""Units of work per call on side A and on side B."""
SHAPES = {
    "sort": ("identical", "+5 %", "+2 %"),
    "waits": ("identical", "+0.4 ms of waiting"),
    "child": ("identical", "+5 %"),
    "threads": ("identical", "+5 %"),
    "parallel": ("identical", "two threads instead of one"),
}
"""Functions of `--shapes`, and what is changed in each."""
SHAPE_CPU_S = 12
"""Maximum CPU time of one comparison of them."""
ALL_TOOLS = ("lockstep", "pyperf", "pytest-benchmark mean:5%", "pytest-benchmark min:5%", "hyperfine + Welch")


@dataclass(frozen=True)
class Answer:
    """What one tool said of one comparison: slower, faster, or nothing."""

    number: int
    tool: str
    case: str
    function: str
    claim: str
    detail: str
    cpu_s: float
    wall_s: float


def main() -> int:
    # Ended from outside, it still takes its burners with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    asked = _arguments()
    if asked.shapes:
        return _shapes(asked)
    rows = [Answer(**row) for row in json.loads(asked.rows.read_text())] if _begun(asked.rows) else []
    with tempfile.TemporaryDirectory() as name, burners(asked.burners):
        folder = Path(name)
        for number in range(max(asked.rounds, asked.slow_rounds, asked.peer_rounds)):
            for row in _round(number, folder, asked, {(row.number, row.tool, row.case) for row in rows}):
                rows.append(row)
                what = f"{row.tool:26} {row.case:10} {row.function:10}"
                print(f"{number:4} {what} {row.claim or '-':7} {row.detail}", flush=True)
                if asked.rows:
                    asked.rows.write_text(json.dumps([vars(row) for row in rows], indent=1))
    print()
    print(table(rows))
    return 0 if "lockstep" not in asked.tools or acceptable(rows) else 1


def _shapes(asked: argparse.Namespace) -> int:
    """Lockstep pairs on code that waits, starts processes or uses threads."""
    rows = [Answer(**row) for row in json.loads(asked.rows.read_text())] if _begun(asked.rows) else []
    done = {(row.number, row.function, row.case) for row in rows}
    loads = []
    with tempfile.TemporaryDirectory() as name, burners(asked.burners):
        for number in range(asked.rounds):
            for function, cases in asked.shapes.items():
                for case in cases:
                    if (number, function, case) in done:
                        continue
                    rows += _asked_once(number, function, case, Path(name))
                    loads.append(os.getloadavg()[0])
                    row = rows[-1]
                    print(f"{number:4} {function:9} {case:26} {row.claim or '-':7} {row.detail}", flush=True)
                    if asked.rows:
                        asked.rows.write_text(json.dumps([vars(row) for row in rows], indent=1))
    print()
    print(shapes_table(rows))
    if loads:
        print(f"\nload average {min(loads):.1f} to {max(loads):.1f}, {asked.burners} burners among it")
    return 0 if shapes_acceptable(rows) else 1


def _asked_once(number: int, function: str, case: str, folder: Path) -> list[Answer]:
    place = folder / f"{number}-{function}"
    both = CASES.get(case, (20, 20))
    sides = _versions(place, both, changed=case not in CASES)
    try:
        return list(_ask(number, "lockstep", case, function, sides, sys.executable))
    finally:
        shutil.rmtree(place)


def shapes_table(rows: list[Answer]) -> str:
    """A row for each function and change."""
    lines = [
        "| function | change | rounds | found | false | same computing | inconclusive | CPU s (most) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for function, case in dict.fromkeys((row.function, row.case) for row in rows):
        mine = [row for row in rows if (row.function, row.case) == (function, case)]
        right = _right(case)
        found = str(sum(row.claim == right for row in mine)) if right else "–"
        open_ones = [
            sum(row.detail.startswith(word) for row in mine) for word in ("same computing", "inconcl")
        ]
        cost = [row.cpu_s for row in mine]
        cells = [function, case, len(mine), found, sum(_false(row) for row in mine), *open_ones]
        cells.append(f"{median(cost):.1f} ({max(cost):.1f})")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _right(case: str) -> str:
    return "" if case == "identical" else "faster" if case.startswith("two") else "slower"


def _false(row: Answer) -> bool:
    """A difference that is not there, one in the wrong direction, or "same" where there is one."""
    right = _right(row.case)
    hidden = bool(right) and row.detail.startswith("same ") and not row.detail.startswith("same computing")
    return hidden or (bool(row.claim) and row.claim != right)


def shapes_acceptable(rows: list[Answer]) -> bool:
    """At most 2 % false; each change found in 80 %, within the CPU time."""
    changed = [row for row in rows if _right(row.case)]
    found = {
        key: fmean(row.claim == _right(row.case) for row in changed if (row.function, row.case) == key)
        for key in {(row.function, row.case) for row in changed}
    }
    false = sum(map(_false, rows))
    return (
        false <= max(1, 0.02 * len(rows))
        and all(share >= 0.8 for share in found.values())
        and median([row.cpu_s for row in rows] or [0.0]) <= SHAPE_CPU_S
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--rounds", type=int, default=20, help="comparisons of identical code by lockstep pairs"
    )
    parser.add_argument("--slow-rounds", type=int, help="of each slower version [rounds]")
    parser.add_argument("--peer-rounds", type=int, help="of each case by each other tool [rounds / 5]")
    known = ", ".join(ALL_TOOLS).replace("%", "%%")
    parser.add_argument("--tools", default="all", help=f"all, or some of: {known}")
    parser.add_argument("--burners", type=int, default=os.cpu_count(), help="programs that load the machine")
    parser.add_argument(
        "--peer-python", default=sys.executable, help="interpreter with pyperf and pytest-benchmark"
    )
    parser.add_argument("--shapes", default="", help=f"all, or some of: {', '.join(SHAPES)}")
    parser.add_argument("--rows", type=Path, help="keep every answer in this JSON file, and go on from it")
    asked = parser.parse_args()
    names = SHAPES if asked.shapes == "all" else [name for name in asked.shapes.split(",") if name]
    if unknown := set(names) - SHAPES.keys():
        parser.error(f"--shapes {', '.join(sorted(unknown))}: there are {', '.join(SHAPES)}")
    asked.shapes = {name: SHAPES[name] for name in names}
    asked.slow_rounds = asked.rounds if asked.slow_rounds is None else asked.slow_rounds
    asked.peer_rounds = max(1, asked.rounds // 5) if asked.peer_rounds is None else asked.peer_rounds
    wanted = (
        ALL_TOOLS
        if asked.tools == "all"
        else [tool for tool in ALL_TOOLS if tool.startswith(tuple(asked.tools.split(",")))]
    )
    asked.tools = [tool for tool in wanted if available(tool, asked.peer_python)]
    return asked


def available(tool: str, python: str) -> bool:
    if tool == "lockstep":
        return True
    if tool.startswith("hyperfine"):
        there = shutil.which("hyperfine") is not None
    else:
        module = tool.partition(" ")[0].replace("-", "_")
        there = (
            subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode
            == 0
        )
    if not there:
        print(f"left out, not installed: {tool}")
    return there


def _begun(rows: Path | None) -> bool:
    return rows is not None and rows.exists()


def _round(
    number: int, folder: Path, asked: argparse.Namespace, done: set[tuple[int, str, str]]
) -> Iterator[Answer]:
    function = ("sort", "json_round")[number % 2]
    for case, units in CASES.items():
        place = folder / f"{number}-{units[1]}"
        sides = _versions(place, units)
        limit = asked.rounds if case == "identical" else asked.slow_rounds
        for tool in asked.tools:
            wanted = number < (limit if tool == "lockstep" else asked.peer_rounds)
            if wanted and (number, tool, case) not in done:
                yield from _ask(number, tool, case, function, sides, asked.peer_python)
        shutil.rmtree(place)


def _versions(folder: Path, both: tuple[int, int], *, changed: bool = False) -> tuple[Path, Path]:
    """Two folders of the same shape that differ in how much work a call does, or in how B does it."""
    sides = (folder / "a", folder / "b")
    for side, units in zip(sides, both, strict=True):
        (side / "experiments").mkdir(parents=True)
        # A comment tells them apart: of identical content no verdict would be given.
        work = WORK.format(units=units, changed=changed and side is sides[1])
        (side / "work.py").write_text(f"{work}# {side.name}\n")
        (side / "experiments" / "workload.py").write_text(EXPERIMENT)
        (side / "pyproject.toml").write_text("")
    return sides


def _ask(
    number: int, tool: str, case: str, function: str, sides: tuple[Path, Path], python: str
) -> Iterator[Answer]:
    asker: dict[str, Callable[..., dict[str, tuple[str, str]]]] = {
        "lockstep": _lockstep,
        "pyperf": pyperf,
        "pytest-benchmark mean:5%": _pytest_benchmark,
        "hyperfine + Welch": hyperfine,
    }
    if tool not in asker:
        return  # min:5% comes with mean:5%, from the same measurements
    before, started = children_cpu_s(), time.perf_counter()
    claims = asker[tool](function, sides, python)
    cpu_s, wall_s = children_cpu_s() - before, time.perf_counter() - started
    for name, (claim, detail) in claims.items():
        yield Answer(number, name, case, function, claim, detail, cpu_s, wall_s)


def _lockstep(function: str, sides: tuple[Path, Path], _python: str) -> dict[str, tuple[str, str]]:
    spec = sides[0] / "spec.json"
    spec.write_text(json.dumps({"experiment": "workload", "params": {"function": function}}))
    command = [
        sys.executable,
        "-m",
        "proctor.cli.main",
        "ab",
        str(spec),
        "--experiments",
        str(sides[0] / "experiments"),
    ]
    command += [
        "--a",
        f"path:{sides[0]}",
        "--b",
        f"path:{sides[1]}",
        "--json",
        "--output",
        str(sides[0] / "out.json"),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=sides[0], env=environment(), check=False
    )
    if done.returncode not in {0, 1, 3}:
        sys.exit(f"proctor ab failed: {done.stderr}")
    data = json.loads(done.stdout)
    point = data["points"][0]
    claim = {"slower": "slower", "faster": "faster"}.get(point["verdict"], "")
    if point["verdict"] == "small":
        claim = "slower" if point["change"] > 0 else "faster"
    pairs = len(point["log_ratios"])
    detail = (
        f"{point['verdict']} {point['change']:+.2%} [{point['low']:+.2%} {point['high']:+.2%}] {pairs} pairs"
    )
    detail += f" noise {point['noise']:.2%} {data['cpu_s']:.1f} s CPU; {_on_clocks(point)} {point['reason']}"
    return {"lockstep": (claim, detail)}


def _on_clocks(point: dict[str, Any]) -> str:
    return ", ".join(
        f"{each['clock']} {each['verdict']} {each['change']:+.1%} [{each['low']:+.1%} {each['high']:+.1%}]"
        for each in point["clocks"]
    )


def pyperf(function: str, sides: tuple[Path, Path], python: str) -> dict[str, tuple[str, str]]:
    files = []
    for side in sides:
        script, out = side / "bench_pyperf.py", side / "pyperf.json"
        script.write_text(PYPERF.format(folder=str(side), function=function))
        _run([python, str(script), "--fast", "-q", "-o", str(out)])
        files.append(str(out))
    said = _run([python, "-m", "pyperf", "compare_to", *files])
    found = re.search(r"([\d.]+)x (slower|faster)", said)
    return {"pyperf": (found[2], found[0]) if found else ("", "not significant")}


def _pytest_benchmark(function: str, sides: tuple[Path, Path], python: str) -> dict[str, tuple[str, str]]:
    stats = []
    for side in sides:
        script, out = side / "test_it.py", side / "pytest.json"
        script.write_text(PYTEST.format(folder=str(side), function=function))
        _run(
            [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--benchmark-json={out}", str(script)],
            cwd=side,
        )
        stats.append(json.loads(out.read_text())["benchmarks"][0]["stats"])
    answers = {}
    for name in ("mean", "min"):
        ratio = stats[1][name] / stats[0][name]
        claim = "slower" if ratio > 1.05 else "faster" if ratio < 1 / 1.05 else ""
        answers[f"pytest-benchmark {name}:5%"] = (claim, f"{ratio - 1:+.2%}")
    return answers


def hyperfine(function: str, sides: tuple[Path, Path], _python: str) -> dict[str, tuple[str, str]]:
    commands = []
    for side in sides:
        script = side / "script.py"
        script.write_text(SCRIPT.format(folder=str(side), function=function))
        commands.append(f"{sys.executable} {script}")
    out = sides[0] / "hyperfine.json"
    _run(["hyperfine", "-N", "--style", "none", "--warmup", "1", "--export-json", str(out), *commands])
    return judged_by_hyperfine(*(result["times"] for result in json.loads(out.read_text())["results"]))


def judged_by_hyperfine(a: list[float], b: list[float]) -> dict[str, tuple[str, str]]:
    """What it prints itself, "R ± S times faster", where R - S is above 1; and a test on its measurements."""
    change = fmean(b) / fmean(a) - 1
    way = "slower" if change > 0 else "faster"
    ratio = max(1 + change, 1 / (1 + change))
    spread = ratio * math.hypot(*(stdev(each) / fmean(each) for each in (a, b)))
    said = f"{ratio:.3f} ± {spread:.3f}"
    return {
        "hyperfine": (way if ratio - spread > 1 else "", said),
        "hyperfine + Welch": (way if welch(a, b) < 0.05 else "", f"{change:+.2%}"),
    }


def welch(a: list[float], b: list[float]) -> float:
    """Two-sided p-value of Welch's t-test."""
    from proctor.analysis.distributions import two_sided_t

    parts = [variance(each) / len(each) for each in (a, b)]
    df = sum(parts) ** 2 / sum(part**2 / (len(each) - 1) for part, each in zip(parts, (a, b), strict=True))
    return two_sided_t((fmean(b) - fmean(a)) / math.sqrt(sum(parts)), df)


def asv(function: str, sides: tuple[Path, Path], python: str) -> dict[str, tuple[str, str]]:
    """A project with a commit for each side, measured in the environment that there is."""
    with tempfile.TemporaryDirectory(prefix="asv-") as name:
        home = Path(name)
        (home / "benchmarks").mkdir()
        (home / "benchmarks" / "__init__.py").write_text("")
        (home / "benchmarks" / "it.py").write_text(ASV.format(function=function))
        conf = {"version": 1, "project": "p", "repo": ".", "branches": ["HEAD"]}
        conf |= {"environment_type": "existing", "benchmark_dir": "benchmarks"}
        (home / "asv.conf.json").write_text(json.dumps(conf))
        commits = []
        git = ["git", "-c", "user.name=b", "-c", "user.email=b@example.com"]
        _run(["git", "init", "-q", "."], home)
        asked = [python, "-m", "asv"]
        _run([*asked, "machine", "--yes"], home, HOME=name)
        for side in sides:
            (home / "side").write_text(side.name)
            _run(["git", "add", "."], home)
            _run([*git, "commit", "-q", "--allow-empty", "-m", f"side {len(commits)}"], home)
            commits.append(_run(["git", "rev-parse", "HEAD"], home).strip())
            measure = [*asked, "run", "-E", f"existing:{python}", "--set-commit-hash", commits[-1]]
            _run(measure, home, HOME=name, SIDE=str(side))
        said = {
            label: _run([*asked, "compare", *options, *commits], home, HOME=name)
            for label, options in (("asv", ()), ("asv --factor 1.01", ("--factor", "1.01")))
        }
    return {label: marked_by_asv(text) for label, text in said.items()}


def marked_by_asv(said: str) -> tuple[str, str]:
    """The mark of the one benchmark: + and - are beyond the factor and significant, ~ is not significant."""
    line = next((line for line in said.splitlines() if "time_it" in line), "")
    if not line:
        sys.exit(f"asv compare says nothing of the benchmark:\n{said}")
    mark = line.strip().lstrip("|").strip()[:1]
    return {"+": "slower", "-": "faster"}.get(mark, ""), " ".join(line.replace("|", " ").split())


def _run(command: list[str], cwd: Path | None = None, **more: str) -> str:
    env = {**environment(), **more}
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


@contextmanager
def burners(count: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def table(rows: list[Answer]) -> str:
    """The published table."""
    heads = (
        "tool and gate",
        "false verdicts on identical code",
        *(f"finds {case}" for case in list(CASES)[1:]),
    )
    lines = [
        f"| {' | '.join(heads)} | wrong sign | CPU s each, median (worst) |",
        "|---|---|---|---|---|---|",
    ]
    for tool in dict.fromkeys(row.tool for row in rows):
        mine = [row for row in rows if row.tool == tool]
        cells = [_share(mine, "identical", {"slower", "faster"})]
        cells += [_share(mine, case, {"slower"}) for case in ("+5 %", "+2 %")]
        slowed = [row for row in mine if row.case != "identical"]
        cells.append(f"{sum(row.claim == 'faster' for row in slowed)} of {len(slowed)}")
        cost = [row.cpu_s for row in mine]
        lines.append(f"| {tool} | {' | '.join(cells)} | {median(cost):.1f} ({max(cost):.1f}) |")
    return "\n".join(lines)


def _share(rows: list[Answer], case: str, claims: set[str]) -> str:
    asked = [row for row in rows if row.case == case]
    return f"{sum(row.claim in claims for row in asked)} of {len(asked)}"


def acceptable(rows: list[Answer]) -> bool:
    """The promise about lockstep pairs, where enough rounds were asked for."""
    mine = {case: [row for row in rows if row.tool == "lockstep" and row.case == case] for case in CASES}
    found = {
        case: fmean(row.claim == "slower" for row in each) if each else 1.0 for case, each in mine.items()
    }
    false = sum(bool(row.claim) for row in mine["identical"])
    cpu_s = median(row.cpu_s for each in mine.values() for row in each)
    return (
        false <= max(2, 0.02 * len(mine["identical"]))
        and found["+5 %"] >= 0.95
        and found["+2 %"] >= 0.75
        and cpu_s <= 6
    )


if __name__ == "__main__":
    sys.exit(main())
