"""How long a result takes and how far it moves when taken again: Proctor beside pyperf and pytest-benchmark.

Each tool measures the same functions `--repeats` times in turn, so that all meet the same machine. Reported
are the median time and CPU to one result, and the spread of the central value over the repeats (relative
standard deviation). Peers run in the interpreter given by `--peer-python`, which has them installed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

FUNCTIONS = {
    "sort": ("import random; values = random.Random(1).sample(range(1000), 1000)", "sorted(values)"),
    "json": ("import json; data = [{'n': n, 's': str(n)} for n in range(50)]", "json.dumps(data)"),
}
EXPERIMENT = """
from proctor import Experiment, register_experiment

@register_experiment("{name}")
class Measured(Experiment):
    def setup(self, context):
        scope = {{}}
        exec({setup!r}, scope)
        self.call = eval("lambda: " + {call!r}, scope)

    def execute_once(self, context):
        self.call()
        return {{}}
"""
BENCHMARK = """
{setup}

def test_it(benchmark):
    benchmark(lambda: {call})
"""


def proctor(name: str, folder: Path, peer: str) -> float:  # noqa: ARG001 - one signature for all tools
    setup, call = FUNCTIONS[name]
    (folder / f"{name}_x.py").write_text(EXPERIMENT.format(name=name, setup=setup, call=call))
    spec = {
        "experiment": name,
        "sources": [f"{name}_x.py"],
        "loops": "auto",
        "iterations": {"warmup": "auto", "measured": "auto"},
    }
    (folder / f"{name}.json").write_text(json.dumps(spec))
    done = run(
        [sys.executable, "-m", "proctor.cli.main", "run", f"{name}.json", "--output-dir", "out"], folder
    )
    result = max((folder / "out").rglob("trials/*/0/result.json"), key=lambda path: path.stat().st_mtime)
    del done
    return float(json.loads(result.read_text())["metrics"]["duration_s"]["p50"])


def pyperf(name: str, folder: Path, peer: str) -> float:
    setup, call = FUNCTIONS[name]
    out = folder / "pyperf.json"
    out.unlink(missing_ok=True)
    run([peer, "-m", "pyperf", "timeit", "--fast", "-q", "-o", str(out), "-s", setup, call], folder)
    runs = json.loads(out.read_text())["benchmarks"][0]["runs"]
    return statistics.mean(value for each in runs for value in each.get("values", ()))


def pytest_benchmark(name: str, folder: Path, peer: str) -> float:
    setup, call = FUNCTIONS[name]
    (folder / f"test_{name}.py").write_text(BENCHMARK.format(setup=setup, call=call))
    out = folder / "bench.json"
    run(
        [peer, "-m", "pytest", "-q", f"test_{name}.py", f"--benchmark-json={out}", "-p", "no:cacheprovider"],
        folder,
    )
    return float(json.loads(out.read_text())["benchmarks"][0]["stats"]["median"])


def run(argv: list[str], cwd: Path) -> subprocess.CompletedProcess[bytes]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run(argv, cwd=cwd, env=environment, capture_output=True, check=True)


TOOLS: dict[str, Callable[[str, Path, str], float]] = {
    "proctor": proctor,
    "pyperf --fast": pyperf,
    "pytest-benchmark": pytest_benchmark,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--peer-python", default=sys.executable)
    options = parser.parse_args()
    rows: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for _ in range(options.repeats):
            for name in FUNCTIONS:
                for tool, measure in TOOLS.items():
                    before, began = sum(os.times()[2:4]), time.perf_counter()
                    try:
                        value = measure(name, Path(scratch), options.peer_python)
                    except subprocess.CalledProcessError as error:
                        print(f"{tool} is not here: {error.stderr.decode()[-200:]}", file=sys.stderr)
                        continue
                    wall, cpu = time.perf_counter() - began, sum(os.times()[2:4]) - before
                    rows.setdefault((name, tool), []).append((value, wall, cpu))
    print(f"{'function':<9} {'tool':<18} {'central value':>14} {'spread':>8} {'wall s':>7} {'CPU s':>7}")
    for (name, tool), found in rows.items():
        values = [each[0] for each in found]
        spread = statistics.stdev(values) / statistics.mean(values) if len(values) > 1 else float("nan")
        wall, cpu = (statistics.median(each[at] for each in found) for at in (1, 2))
        central = statistics.median(values) * 1e6
        print(f"{name:<9} {tool:<18} {central:>11.1f} µs {spread:>8.1%} {wall:>7.2f} {cpu:>7.2f}")


if __name__ == "__main__":
    main()
