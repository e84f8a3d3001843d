"""What starting a command costs: CPU seconds and peak memory, next to bare Python and to peers' own help."""

from __future__ import annotations

import argparse
import compileall
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROCTOR = str(Path(sys.executable).with_name("proctor"))


def cost(argv: list[str], rounds: int, cwd: str) -> tuple[float, float] | None:
    """Median CPU seconds and peak MB of a command; None when it fails."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    seconds, megabytes = [], []
    for _ in range(rounds):
        child = subprocess.Popen(
            argv, cwd=cwd, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            return None
        seconds.append(usage.ru_utime + usage.ru_stime)
        megabytes.append(usage.ru_maxrss / 1024)
    return statistics.median(seconds), statistics.median(megabytes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    rounds = parser.parse_args().rounds
    compileall.compile_dir(ROOT / "src", quiet=2)
    python = sys.executable
    commands = {
        "python -c pass (floor)": [python, "-c", "pass"],
        "proctor --help": [PROCTOR, "--help"],
        "proctor list": [PROCTOR, "list"],
        "proctor ls": [PROCTOR, "ls"],
        "proctor doctor": [PROCTOR, "doctor"],
        "pyperf --help": [python, "-m", "pyperf", "--help"],
        "pytest --version": [python, "-m", "pytest", "--version"],
    }
    if shutil.which("hyperfine"):
        commands["hyperfine --help"] = ["hyperfine", "--help"]
    print(f"{'command':<26} {'CPU s':>7} {'peak MB':>8}   (target for proctor: 0.15 s, 40 MB)")
    with tempfile.TemporaryDirectory() as cwd:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for name, argv in commands.items():
            found = cost(argv, rounds, cwd)
            print(f"{name:<26} " + (f"{found[0]:7.3f} {found[1]:8.1f}" if found else "not here"))


if __name__ == "__main__":
    main()
