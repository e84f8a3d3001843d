"""Every benchmark says what it does; that they run is for who runs them."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
BENCHMARKS = sorted(
    path.name for path in (ROOT / "benchmarks").glob("*.py") if "argparse" in path.read_text()
)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_explains_itself(name):
    said = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / name), "--help"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert said.returncode == 0, said.stderr
    assert "usage:" in said.stdout


def test_the_verdict_of_hyperfine_is_its_own_ratio_with_its_spread_apart_from_one():
    quality = importlib.import_module("comparison_quality")
    apart = quality.judged_by_hyperfine([1.0, 1.01, 0.99], [1.1, 1.11, 1.09])
    assert apart["hyperfine"][0] == "slower"
    wide = quality.judged_by_hyperfine([1.0, 1.3, 0.7], [1.1, 1.4, 0.8])
    assert wide["hyperfine"] == ("", "1.100 ± 0.446")


@pytest.mark.parametrize(
    ("line", "claim"),
    [
        ("| +        | 1.00±0.1ms   | 1.20±0.1ms | 1.20 | it.time_it |", "slower"),
        ("| -        | 1.20±0.1ms   | 1.00±0.1ms | 0.83 | it.time_it |", "faster"),
        ("| ~        | 1.00±0.1ms   | 1.20±0.9ms | 1.20 | it.time_it |", ""),
        ("|          | 1.00±0.1ms   | 1.02±0.1ms | 1.02 | it.time_it |", ""),
    ],
)
def test_the_verdict_of_asv_is_its_mark(line, claim):
    quality = importlib.import_module("comparison_quality")
    assert quality.marked_by_asv(f"All benchmarks:\n{line}\n")[0] == claim
