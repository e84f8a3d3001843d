"""Every sample task builds with nothing but bubblewrap and the host's own system."""

# ruff: noqa: ASYNC221, E501 - a short process before each test; a table

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from proctor.tasks.read import read_task

TASKS = Path(__file__).parents[3] / "tasks"
NAMES = sorted(each.name for each in TASKS.iterdir() if (each / "task.toml").is_file())
HOST_NEEDS = {
    "git-surgery": ["git", "--version"],
    "faster-windows": ["/usr/bin/python3", "--version"],
    "leaner-totals": ["/usr/bin/python3", "--version"],
    "median-bug": ["/usr/bin/python3", "-m", "pytest", "--version"],
    "slow-build": ["make", "--version"],
    "sqlite-report": ["sqlite3", "--version"],
    "start-service": ["/usr/bin/python3", "--version"],
}
EXPECTED = {
    "config-edit": "server.ini", "faster-windows": "busiest.py", "git-surgery": "project",
    "leaner-totals": "totals.py", "log-forensics": "access.log", "median-bug": "stats.py",
    "shell-quiz": "filters", "slow-build": "bin/compile", "sqlite-report": "shop.db", "start-service": "counter.py",
    "two-steps": "addresses.txt",
}  # fmt: skip

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap")]


@pytest.mark.parametrize("name", NAMES)
async def test_the_sample_task_builds_over_the_host_s_system(images, look, name):
    try:
        there = (
            subprocess.run(HOST_NEEDS.get(name, ["true"]), capture_output=True, check=False).returncode == 0
        )
    except FileNotFoundError:
        there = False
    if not there:
        pytest.skip(f"this machine lacks: {' '.join(HOST_NEEDS[name])}")
    root = await images.root(read_task(TASKS / name))
    assert (root.host, root.workdir) == (True, "/app")
    assert await look(root, f"ls -d {EXPECTED[name]}") == EXPECTED[name]
