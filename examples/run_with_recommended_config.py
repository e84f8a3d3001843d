"""Run a simulation with the recommended configuration, and keep its log for analysis.

python examples/run_with_recommended_config.py --steps 50 --agents 30 --output simulation_results
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

import proctor
from proctor.experiments.simulation.logged import simulate


def main() -> int:
    """Recommend, simulate, and say where the log is."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=100, help="steps of the simulation")
    parser.add_argument("--agents", type=int, default=30, help="agents at the start")
    parser.add_argument("--output", type=Path, default=Path("simulation_results"), help="folder for the log")
    given = parser.parse_args()
    try:
        found = proctor.get_recommended_config(given.agents, given.steps, explain=print)
    except proctor.ProctorError as error:
        print(error, file=sys.stderr)
        return 2
    given.output.mkdir(parents=True, exist_ok=True)
    file = given.output / "simulation.db"
    if file.exists():
        print(f"{file} exists already; name another folder with --output", file=sys.stderr)
        return 2
    done = simulate(found, file)
    (given.output / "config.json").write_text(json.dumps(asdict(found), indent=1) + "\n")
    print(f"{done.rows:,} rows in {done.seconds:.2f} s: {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
