"""Damaged specs and ZIPs are planned or refused with a sentence; `make soak` tries 20,000 and 2,000."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOAK = bool(os.environ.get("PROCTOR_SOAK"))


@pytest.mark.fault
def test_no_mutated_file_gives_a_traceback_or_fills_the_memory():
    specs, zips = ("20000", "2000") if SOAK else ("400", "150")
    done = subprocess.run(
        [sys.executable, "benchmarks/mutated_files.py", "--specs", specs, "--zips", zips],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" 0 wrong") == 2
