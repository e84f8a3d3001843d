"""What reading a run of 100,000 trials costs: CPU and peak memory of each command, as a process of its own.

Run it as `python benchmarks/large_run.py [--trials 100000] [--keep FOLDER]`. Two runs of rollouts (1,000
tasks × 100 rollouts) and two of an experiment (1,000 × 100 parameter points) are made up and put into a store
through its own interface; then every command reads them. The bars: summary, report, compare and gate under
10 s of CPU and 500 MB each, and `ls` as if the runs were small. `slowed` says how much slower the machine was
meanwhile than when it is quiet; the bars take no account of it.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor.model.describe import describe
from proctor.model.outcome import Outcome
from proctor.model.plan import PlannedTrial, trial_key
from proctor.model.record import Artifact, AttemptRecord, Failure
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.store.open import open_store
from proctor.store.store import Store

CPU_BAR_S = 10.0
MEMORY_BAR_MB = 500.0
QUIET_S = 0.18
"""What `yardstick_s` gives on the machine of the published figures when nothing else runs."""
ITERATIONS = 5
RULES = """\
- score not worse than baseline by more than 3pp at 95%
- duration_s not slower than 5%
- failure_count >= 0
"""
SPEED_RULES = "- duration_s not slower than 10%\n- failure_count == 0\n"
ENVIRONMENT = {
    "hostname": "bench",
    "cpu_model": "Example CPU",
    "cores": 8,
    "memory_bytes": 2**35,
    "python": {"version": "3.11.7", "implementation": "CPython"},
}


@dataclass(frozen=True, slots=True)
class Cost:
    """What one command cost."""

    cpu_s: float
    wall_s: float
    peak_mb: float
    code: int


def rollouts(tasks: int, each: int) -> list[PlannedTrial]:
    found: list[PlannedTrial] = []
    for task in range(tasks):
        for rollout in range(each):
            name = f"suite/task-{task:04d}"
            key = trial_key(subject_digest=name, agent="terminal", model="example/m1", rollout=rollout)
            found.append(
                PlannedTrial(
                    key=key,
                    index=len(found),
                    kind="task",
                    subject=name,
                    subject_digest=key[:64],
                    body=0,
                    seed=rollout,
                    agent="terminal",
                    agent_version="1",
                    model="example/m1",
                    overrides={"timeout_s": 180.0},
                    rollout=rollout,
                    path=f"tasks/task-{task:04d}",
                )
            )
    same = {trial.subject: trial.subject_digest for trial in reversed(found)}
    return [_with_digest(trial, same[trial.subject]) for trial in found]


def _with_digest(trial: PlannedTrial, digest: str) -> PlannedTrial:
    from msgspec.structs import replace

    return replace(trial, subject_digest=digest)


def points(sizes: int, variants: int) -> list[PlannedTrial]:
    found: list[PlannedTrial] = []
    for size in range(sizes):
        for variant in range(variants):
            params = {"size": 100 * (size + 1), "variant": variant, "records": 2000}
            found.append(
                PlannedTrial(
                    key=trial_key(subject_digest="sorting", params=params),
                    index=len(found),
                    kind="experiment",
                    subject="sorting",
                    subject_digest="d" * 64,
                    body=0,
                    params=params,
                )
            )
    return found


def ends(trials: list[PlannedTrial], seed: int, gain: float) -> Iterator[tuple[AttemptRecord, bool]]:
    """One counted attempt per rollout; of 200 one was lost by the sandbox first, and one for good."""
    rng = random.Random(seed)
    ability: dict[str, float] = {}
    difficulty = random.Random(7)
    at = 1_790_000_000.0
    for trial in trials:
        if trial.subject not in ability:
            ability[trial.subject] = min(1.0, max(0.0, difficulty.betavariate(0.6, 0.6) + gain))
        luck = rng.random()
        if luck < 0.005:
            yield _rollout(trial, Outcome.SANDBOX_ERROR, at, 0.4, rng), False
        lost = luck > 0.995
        outcome = Outcome.PASSED if rng.random() < ability[trial.subject] else Outcome.FAILED
        took = rng.lognormvariate(3.0, 0.4)
        yield (
            _rollout(
                trial, Outcome.SANDBOX_ERROR if lost else outcome, at, took, rng, 2 if luck < 0.005 else 1
            ),
            True,
        )
        at += took / 50


def _rollout(
    trial: PlannedTrial, outcome: Outcome, at: float, took: float, rng: random.Random, number: int = 1
) -> AttemptRecord:
    broken = outcome is Outcome.SANDBOX_ERROR
    reward = None if broken else float(outcome is Outcome.PASSED)
    tokens = rng.randint(2_000, 60_000)
    shares = {"image": 0.001, "start": 0.01, "setup": 0.02, "agent": 0.85, "collect": 0.02, "verify": 0.08}
    return AttemptRecord(
        key=trial.key,
        number=number,
        outcome=outcome,
        started_at=at,
        ended_at=at + took,
        reward=reward,
        failure=Failure(phase="start", type="SandboxError", message="no luck") if broken else None,
        phases_s={name: took * share for name, share in shares.items()},
        metrics={} if broken else {"rewards": {"reward": reward}},
        ledger={
            "cpu_s": took * 0.2,
            "peak_memory_bytes": rng.randint(2**24, 2**29),
            "read_bytes": rng.randint(0, 2**20),
            "write_bytes": rng.randint(0, 2**20),
            "oom_kills": 0,
            "throttled_s": 0.0,
            "backend": "bubblewrap",
            "enforced": {"network": "network namespace: none", "cpus": "cgroup v1", "memory": "cgroup v1"},
        },
        usage={
            "steps": rng.randint(1, 40),
            "tool_calls": rng.randint(1, 40),
            "prompt_tokens": tokens,
            "completion_tokens": tokens // 10,
            "cost_usd": tokens * 1e-6,
        },
        artifacts=tuple(
            Artifact(
                name=name, digest=f"{trial.key[:60]}{at_file:04d}", size_bytes=800, media_type="text/plain"
            )
            for at_file, name in enumerate(("artifacts/diff.patch", "trajectory.json", "verifier/reward.txt"))
        ),
        notes=("host-root: made from this machine's own system; not reproducible elsewhere",),
        worker="bench:1:1",
    )


def timings(trials: list[PlannedTrial], seed: int, factor: float) -> Iterator[tuple[AttemptRecord, bool]]:
    rng = random.Random(seed)
    at = 1_790_000_000.0
    for trial in trials:
        middle = 1e-8 * trial.params["size"] * (1 + trial.params["variant"] / 50) * factor
        values = [middle * rng.lognormvariate(0, 0.02) for _ in range(ITERATIONS)]
        rows: list[dict[str, Any]] = [
            {"index": index, "duration_s": value, "cpu_s": value * 0.98} for index, value in enumerate(values)
        ]
        yield (
            AttemptRecord(
                key=trial.key,
                number=1,
                outcome=Outcome.PASSED,
                started_at=at,
                ended_at=at + 0.02,
                phases_s={"setup": 0.001, "work": sum(values), "teardown": 0.0002},
                metrics={
                    "duration_s": describe(values),
                    "cpu_s": describe([value * 0.98 for value in values]),
                },
                iterations=tuple(rows),
                ledger={"noise": {"cpu_over_wall": 0.99, "cpu_pressure": 0.01}, "peak_rss_bytes": 3.1e7},
                worker="bench:1:1",
            ),
            True,
        )
        at += 0.02


def put(store: Store, folder: Path, name: str, number: int, trials: list[PlannedTrial]) -> None:
    kind = trials[0].kind
    run_id = f"2026010{number}T000000-{name[:6]}{number}"
    place = folder / "results" / name / run_id
    place.mkdir(parents=True)
    info = RunInfo(
        id=run_id, name=name, kind=kind, status=RunStatus.DONE, created_at=1_790_000_000.0 + number,
        started_at=1_790_000_000.0 + number, finished_at=1_790_002_000.0, seed=0, total=len(trials),
        folder=str(place), environment=ENVIRONMENT, versions={"proctor": "0.1.0"}, plan_digest=f"{number}",
        vcs={"commit": f"{number}" * 40, "dirty": False},
    )  # fmt: skip
    made = (
        ends(trials, number, 0.0 if number == 1 else -0.02)
        if kind == "task"
        else timings(trials, number, 1.0 if number == 1 else 1.01)
    )
    store.import_run(info, trials, made)


def run(words: list[str], folder: Path) -> Cost:
    """One command as a child; its CPU and peak memory as the kernel counted them."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PROCTOR_HOME": str(folder / ".proctor"), "PROCTOR_OUTPUT_DIR": str(folder / "results")}
    with (folder / "output.txt").open("wb") as output, (folder / "errors.txt").open("wb") as errors:
        started = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, "-m", "proctor.cli.main", *words],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=errors,
        )
        _, status, used = os.wait4(child.pid, 0)
        wall = time.perf_counter() - started
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in {0, 1, 3}:
        sys.exit(f"proctor {' '.join(words)} failed:\n{(folder / 'errors.txt').read_text()[-3000:]}")
    return Cost(used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1024, child.returncode)


def yardstick_s() -> float:
    """CPU time of a fixed loop: neighbours on the same core make everything slower by the same factor."""
    started = time.process_time()
    total = 0
    for number in range(5_000_000):
        total += number
    return time.process_time() - started


def measure(folder: Path, ids: dict[str, list[str]], only: str) -> bool:
    fine = True
    (folder / "rules.yaml").write_text(RULES)
    (folder / "speed.yaml").write_text(SPEED_RULES)
    rolled, measured = ids["rollouts"], ids["points"]
    cases = [
        ("ls", ["ls"], 0.5),
        ("summarize (rollouts)", ["summarize", rolled[0]], CPU_BAR_S),
        ("summarize --json (rollouts)", ["summarize", rolled[0], "--json"], CPU_BAR_S),
        ("show (rollouts)", ["show", rolled[0]], CPU_BAR_S),
        ("report --format html (rollouts)", ["report", rolled[0], "--format", "html"], CPU_BAR_S),
        ("compare (rollouts)", ["compare", *rolled], CPU_BAR_S),
        ("compare --html (rollouts)", ["compare", *rolled, "--html", "compare.html"], CPU_BAR_S),
        (
            "gate (rollouts)",
            ["gate", rolled[1], "--baseline", rolled[0], "--rules", "rules.yaml"],
            CPU_BAR_S,
        ),
        ("history (rollouts)", ["history", "rollouts"], CPU_BAR_S),
        ("show (points)", ["show", measured[0]], CPU_BAR_S),
        ("report --format html (points)", ["report", measured[0], "--format", "html"], CPU_BAR_S),
        ("compare (points)", ["compare", *measured], CPU_BAR_S),
        ("compare --json (points)", ["compare", *measured, "--json"], CPU_BAR_S),
        ("compare --html (points)", ["compare", *measured, "--html", "compare.html"], CPU_BAR_S),
        (
            "gate (points)",
            ["gate", measured[1], "--baseline", measured[0], "--rules", "speed.yaml"],
            CPU_BAR_S,
        ),
        ("history (points)", ["history", "points"], CPU_BAR_S),
    ]
    print(f"{'command':<36}{'CPU s':>8}{'wall s':>8}{'peak MB':>9}{'exit':>6}{'slowed':>8}  bar")
    for name, words, bar in cases:
        if only not in name:
            continue
        before = yardstick_s()
        cost = run(words, folder)
        slowed = (before + yardstick_s()) / 2 / QUIET_S
        kept = cost.cpu_s < bar and cost.peak_mb < MEMORY_BAR_MB
        fine = fine and kept
        shown = f"{name:<36}{cost.cpu_s:>8.2f}{cost.wall_s:>8.2f}{cost.peak_mb:>9.0f}{cost.code:>6}"
        print(f"{shown}{slowed:>7.1f}×  {'held' if kept else 'MISSED'}", flush=True)
    return fine


def prepare(folder: Path, trials: int) -> None:
    """Make the runs, unless they are there already."""
    (folder / ".proctor").mkdir(parents=True, exist_ok=True)
    each = 100 if trials >= 1000 else 10
    with open_store(str(folder / ".proctor" / "proctor.db")) as store:
        if store.runs(limit=1):
            return
        for name, planned in (
            ("rollouts", rollouts(trials // each, each)),
            ("points", points(trials // each, each)),
        ):
            started = time.perf_counter()
            for number in (1, 2):
                put(store, folder, name, number, planned)
            print(f"two runs of {len(planned)} {name} in {time.perf_counter() - started:.0f} s", flush=True)


def ids_in(folder: Path) -> dict[str, list[str]]:
    with open_store(str(folder / ".proctor" / "proctor.db"), create=False) as store:
        return {name: sorted(run.id for run in store.runs(name=name)) for name in ("rollouts", "points")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--keep", type=Path, help="make the store here, or use the one that is there")
    parser.add_argument("--only", default="", help="only commands whose name contains this")
    parser.add_argument("--prepare", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prepare:
        prepare(options.prepare, options.trials)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        # In a process of its own: a child's peak memory begins at its parent's.
        made = [sys.executable, __file__, "--trials", str(options.trials), "--prepare", str(folder)]
        subprocess.run(made, check=True)
        fine = measure(folder, ids_in(folder), options.only)
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
