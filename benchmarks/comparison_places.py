"""Whether the folder of code decides a verdict: the same code in folders of random lengths and depths.

Each round makes two folders with random names, as two revisions, as two paths or as a working tree against
its last commit, and asks for each workload (regular expressions, allocation, arithmetic) what became slower.
The sides differ by a comment, so that their content is not identical and the verdict is a measured one; or B
does 5 % or 2 % more of the same work. A verdict on the first is false.

Other tools get the same folders in the same moments, and what they call a difference counts as their verdict:
pyperf's `compare_to` naming a ratio (its t-test at 95 %); hyperfine's own "R ± S times faster" where R - S is
above 1, and besides a t-test on its measurements; the + or - of `asv compare` at its default factor of 1.1,
below which it is silent by design, and at 1.01, where its test decides. With --rows a run goes on from where
it ended.

    python benchmarks/comparison_places.py --rounds 60
    python benchmarks/comparison_places.py --rounds 60 --burners 8
    python benchmarks/comparison_places.py --rounds 60 --tools all --rows rows.jsonl
    python benchmarks/comparison_places.py --rounds 20 --python OLDER/.venv/bin/python --cases same
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import string
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from comparison_quality import asv, available, burners, children_cpu_s, environment, hyperfine, pyperf
from comparison_sources import PLACES_EXPERIMENT, PLACES_WORK

CASES = {"same": (20, 20), "+5 %": (20, 21), "+2 %": (50, 51)}
"""Units of work per call on side A and on side B."""
WORKLOADS = ("expressions", "allocation", "arithmetic")
KINDS = ("paths", "revisions", "tree")
PEERS = {"pyperf": pyperf, "hyperfine": hyperfine, "asv": asv}
MOST_CPU_S = 12.0


@dataclass(frozen=True)
class Answer:
    """What one tool said of one comparison: slower, faster, or nothing."""

    number: int
    tool: str
    kind: str
    workload: str
    case: str
    claim: str
    detail: str
    cpu_s: float


@dataclass(frozen=True)
class Sides:
    """Two versions of the code, and how `proctor ab` is told about them."""

    a: Path
    b: Path
    work: Path
    """Where the command is given."""
    options: tuple[str, ...]


def main() -> int:
    # Ended from outside, it still takes its burners with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    asked = _arguments()
    rows = _read(asked.rows)
    done = {(row.number, row.tool, row.workload, row.case) for row in rows}
    rng = random.Random(asked.seed)
    with burners(asked.burners):
        for number in range(asked.rounds):
            places = _places(rng)
            kind = KINDS[number % len(KINDS)]
            for workload in WORKLOADS:
                for case in asked.cases:
                    for tool in asked.tools:
                        if (number, tool, workload, case) in done:
                            continue
                        with tempfile.TemporaryDirectory(prefix="places-") as folder:
                            sides = _made(Path(folder), places, kind, CASES[case])
                            told = _ask(number, tool, kind, workload, case, sides, asked.python)
                        rows += told
                        for row in told:
                            what = f"{number:4} {row.tool:18} {kind:9} {workload:11} {case:5}"
                            print(f"{what} {row.claim or '-':7} {row.detail}", flush=True)
                        if asked.rows:
                            with asked.rows.open("a") as file:
                                file.writelines(f"{json.dumps(asdict(row))}\n" for row in told)
    print()
    print(table(rows))
    return 0 if acceptable(rows) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=60, help="pairs of folders")
    parser.add_argument("--cases", default=",".join(CASES), help="some of: same,+5 %%,+2 %%")
    parser.add_argument("--tools", default="proctor", help=f"all, or some of: proctor,{','.join(PEERS)}")
    parser.add_argument("--burners", type=int, default=0, help="programs that load the machine")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has the tools")
    parser.add_argument("--seed", type=int, default=1, help="of the names of the folders")
    parser.add_argument(
        "--rows", type=Path, help="add every answer to this file of JSON lines, and go on from it"
    )
    asked = parser.parse_args()
    asked.cases = [case.strip() for case in asked.cases.split(",")]
    named = [tool.strip() for tool in asked.tools.split(",")]
    asked.tools = ["proctor", *PEERS] if named == ["all"] else named
    if unknown := (set(asked.cases) - CASES.keys()) | (set(asked.tools) - {"proctor", *PEERS}):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    missing = [tool for tool in asked.tools if tool in PEERS and not available(tool, asked.python)]
    if missing and named != ["all"]:
        parser.error(f"not installed for {asked.python}: {', '.join(missing)}")
    asked.tools = [tool for tool in asked.tools if tool not in missing]
    return asked


def _read(path: Path | None) -> list[Answer]:
    lines = path.read_text().splitlines() if path and path.exists() else []
    return [Answer(**json.loads(line)) for line in lines]


def _places(rng: random.Random) -> tuple[str, str]:
    """Two folders: 1 to 4 names of 1 to 24 letters each."""

    def name() -> str:
        return "".join(rng.choices(string.ascii_lowercase, k=rng.randint(1, 24)))

    a, b = ("/".join(name() for _ in range(rng.randint(1, 4))) for _ in range(2))
    return f"a/{a}", f"b/{b}"


def _made(folder: Path, places: tuple[str, str], kind: str, units: tuple[int, int]) -> Sides:
    a, b = (folder / place for place in places)
    _write(a, units[0], "")
    if kind == "paths":
        _write(b, units[1], "# the same\n")
        return Sides(a, b, a, ("--a", f"path:{a}", "--b", f"path:{b}"))
    _git(a, "init", "-q", ".")
    _git(a, "add", ".")
    _git(a, "commit", "-qm", "first")
    # Other tools know nothing of revisions: they get the first in a folder of its own.
    shutil.copytree(a, b, ignore=shutil.ignore_patterns(".git"))
    _write(a, units[1], "# the same\n")
    if kind == "tree":
        return Sides(b, a, a, ())
    _git(a, "commit", "-qam", "second")
    return Sides(b, a, a, ("--a", "HEAD~1", "--b", "HEAD"))


def _write(side: Path, units: int, comment: str) -> None:
    (side / "src" / "work").mkdir(parents=True, exist_ok=True)
    (side / "experiments").mkdir(exist_ok=True)
    (side / "src" / "work" / "__init__.py").write_text(PLACES_WORK.format(units=units) + comment)
    (side / "experiments" / "workload.py").write_text(PLACES_EXPERIMENT)
    (side / "pyproject.toml").write_text("")


def _git(folder: Path, *words: str) -> None:
    command = ["git", "-c", "user.name=b", "-c", "user.email=b@example.com", *words]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def _ask(
    number: int, tool: str, kind: str, workload: str, case: str, sides: Sides, python: str
) -> list[Answer]:
    """What a tool says, in each of the ways in which its measurements can be judged; its own comes first."""
    before = children_cpu_s()
    if tool == "proctor":
        said = {"proctor": _proctor(workload, sides, python)}
    else:
        said = PEERS[tool](workload, (sides.a / "src", sides.b / "src"), python)
    cpu_s = children_cpu_s() - before
    return [
        Answer(number, name, kind, workload, case, claim, detail, cpu_s)
        for name, (claim, detail) in said.items()
    ]


def _proctor(workload: str, sides: Sides, python: str) -> tuple[str, str]:
    spec = sides.work / "spec.json"
    spec.write_text(json.dumps({"experiment": "workload", "params": {"function": workload}}))
    command = [python, "-m", "proctor.cli.main", "ab", "spec.json", "--experiments", "experiments"]
    command += [*sides.options, "--json", "--output", "out.json"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=sides.work, env=environment(), check=False
    )
    if done.returncode not in {0, 1, 3}:
        sys.exit(f"proctor ab failed: {done.stderr}")
    point = json.loads(done.stdout)["points"][0]
    different = point["verdict"] in {"slower", "faster", "small"}
    claim = ("slower" if point["change"] > 0 else "faster") if different else ""
    detail = f"{point['verdict']} {point['change']:+.2%} [{point['low']:+.2%} {point['high']:+.2%}]"
    return claim, f"{detail} {len(point['log_ratios'])} pairs noise {point['noise']:.2%} {point['reason']}"


def table(rows: list[Answer]) -> str:
    """A row for each tool: false verdicts, what was found, and the price."""
    lines = [
        "| tool | same code: false | +5 %: found, wrong | +2 %: found, wrong | CPU s: median, 95 %, most |",
        "|---|---|---|---|---|",
    ]
    for tool in dict.fromkeys(row.tool for row in rows):
        mine = [row for row in rows if row.tool == tool]
        same = [row for row in mine if row.case == "same"]
        cells = [f"{sum(bool(row.claim) for row in same)} of {len(same)}"]
        for case in ("+5 %", "+2 %"):
            slower = [row for row in mine if row.case == case]
            found, wrong = (sum(row.claim == claim for row in slower) for claim in ("slower", "faster"))
            cells.append(f"{found} of {len(slower)}, {wrong}")
        cost = sorted(row.cpu_s for row in mine)
        cells.append(f"{median(cost):.1f}, {cost[int(0.95 * (len(cost) - 1))]:.1f}, {cost[-1]:.1f}")
        lines.append(f"| {tool} | {' | '.join(cells)} |")
    return "\n".join(lines)


def acceptable(rows: list[Answer]) -> bool:
    """At most 1 % false, +5 % found in 95 % and +2 % in 75 %, within the CPU time, of Proctor's own."""
    mine = {case: [row for row in rows if (row.tool, row.case) == ("proctor", case)] for case in CASES}
    least = {"+5 %": 0.95, "+2 %": 0.75}
    found = all(
        sum(row.claim == "slower" for row in mine[case]) >= share * len(mine[case])
        for case, share in least.items()
    )
    false = sum(bool(row.claim) for row in mine["same"])
    cost = median([row.cpu_s for each in mine.values() for row in each] or [0.0])
    return found and false <= 0.01 * len(mine["same"]) and cost <= MOST_CPU_S


if __name__ == "__main__":
    sys.exit(main())
