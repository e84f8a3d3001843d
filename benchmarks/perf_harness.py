"""The harness against one that spawns a Python process per episode: the same episodes, side by side.

Both run the default scenario, or that of `--scenario` (step-by-step: specs/episodes/scenario.yaml), as many
episodes at a time, with images built beforehand. The other harness starts `proctor run` on a spec of one
trial for each episode, as scripts around a command line do. Rounds alternate, so that a machine that others
use too treats both alike; the table shows medians.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from machine_pace import MachinePace

from proctor.runs.perf.scenario import load_scenario, plan_episodes
from proctor.settings import Settings

PROCTOR = [sys.executable, "-m", "proctor.cli.main"]


def environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PROCTOR_")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**kept, "PROCTOR_HOME": str(home / ".proctor"), "PROCTOR_ROLLOUTS_DIR": str(home / "rollouts")}


def run_own(home: Path, episodes: int, workers: int, sandbox: str, scenario: Path | None) -> dict[str, float]:
    """One `proctor perf`, from the shell's point of view, and what it says of itself."""
    words = ["perf", "--episodes", str(episodes), "--workers", str(workers), "--sandbox", sandbox, "--json"]
    words += ["--scenario", str(scenario)] if scenario else []
    began, used = time.perf_counter(), cpu_s()
    done = subprocess.run(
        [*PROCTOR, *words, "--output-dir", str(home / "perf")],
        env=environment(home),
        capture_output=True,
        text=True,
        check=False,
    )
    total = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"proctor perf ended with {done.returncode}: {done.stderr or done.stdout}")
    summary = json.loads(done.stdout)["summary"]
    return {
        "total_s": total,
        "cpu_s": cpu_s() - used,
        "episodes_s": summary["wall_clock_total_s"],
        "prepare_s": summary["prepare_s"],
        "overhead_share": summary["overhead_share"],
        "p50_s": summary["summary"]["p50_wall_clock_s"],
    }


def one_trial_specs(home: Path, episodes: int, sandbox: str, scenario: Path | None) -> list[Path]:
    """The scenario's episodes as specs of one trial each."""
    planned = plan_episodes(
        load_scenario(scenario),
        episodes=episodes,
        workers=1,
        timeout_s=180.0,
        sandbox=sandbox,
        settings=Settings(home=home / ".proctor"),
    )
    specs = []
    for trial in planned.plan.trials:
        entry = planned.spec.tasks[trial.body]
        spec = {
            "name": f"episode-{trial.index}",
            "tasks": [
                {"path": str(trial.path), "agent": trial.agent, "agent_options": dict(entry.agent_options)}
            ],
            "sandbox": {"backend": sandbox, "host_root": sandbox == "bubblewrap"},
            "timeout_s": 180,
        }
        specs.append(home / f"episode-{trial.index}.json")
        specs[-1].write_text(json.dumps(spec))
    return specs


def run_spawning(home: Path, specs: list[Path], workers: int) -> dict[str, float]:
    """A process per episode, so many at a time; the seconds of all."""

    def one(spec: Path) -> None:
        subprocess.run([*PROCTOR, "run", str(spec)], env=environment(home), capture_output=True, check=True)

    began, used = time.perf_counter(), cpu_s()
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, specs))
    return {"total_s": time.perf_counter() - began, "cpu_s": cpu_s() - used}


def cpu_s() -> float:
    """CPU seconds of every process that was started here and has ended, and of what those started."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=24)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sandbox", default="bubblewrap")
    parser.add_argument("--scenario", type=Path)
    options = parser.parse_args()
    own: list[dict[str, float]] = []
    spawning: list[dict[str, float]] = []
    with MachinePace() as pace, tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        specs = one_trial_specs(home, options.episodes, options.sandbox, options.scenario)
        run_own(home, 6, options.workers, options.sandbox, options.scenario)
        for _ in range(options.rounds):
            own.append(run_own(home, options.episodes, options.workers, options.sandbox, options.scenario))
            spawning.append(run_spawning(home, specs, options.workers))
    middle = {name: median(each[name] for each in own) for name in own[0]}
    other = {name: median(each[name] for each in spawning) for name in spawning[0]}
    print(f"{options.episodes} episodes, {options.workers} at a time, median of {options.rounds} rounds")
    print(f"load: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    print(f"{'':<40} {'wall s':>8} {'CPU s':>8}")
    print(f"{'proctor perf, whole command':<40} {middle['total_s']:8.2f} {middle['cpu_s']:8.2f}")
    print(f"{'  of it before the first episode':<40} {middle['prepare_s']:8.2f}")
    print(f"{'  of it episodes':<40} {middle['episodes_s']:8.2f}")
    print(f"{'a Python process per episode':<40} {other['total_s']:8.2f} {other['cpu_s']:8.2f}")
    print(f"{'times as long, episodes':<40} {other['total_s'] / middle['episodes_s']:8.1f}")
    ratios = other["total_s"] / middle["total_s"], other["cpu_s"] / middle["cpu_s"]
    print(f"{'times as long, whole command':<40} {ratios[0]:8.1f} {ratios[1]:8.1f}")
    print(f"{'own overhead of an episode':<40} {100 * middle['overhead_share']:8.1f} %")
    print(f"{'median episode':<40} {1e3 * middle['p50_s']:8.0f} ms")
    print(pace.text)


if __name__ == "__main__":
    main()
