"""Every benchmark says what it does; that they run is for who runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
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
