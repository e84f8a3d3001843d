"""What a trial of a task costs: CPU of the harness and of everything, against Harbor's own trial loop.

CPU seconds are of this process (`controller`) and of all its children besides (`all`), so sandboxes, agents
and verifiers are in them. The row of a free sandbox is the harness by itself: the same trials with a back end
that makes no process and no namespace; engine, store, records, run folder and report are all there.

`--harbor PYTHON` names an interpreter in which Harbor is installed (3.12 or later); without it those rows are
left out. Harbor runs the same task through an environment that only spawns processes (its own overhead),
through one that starts a bare bubblewrap per command with nothing but the trial's folders to write to, and
through one that gives it a root that can be written to, as ours has; with `--harbor-job N` also as one job of
so many trials, two at a time like ours; and through podman when `--harbor-podman` is given (which wants
podman-compose 1.1 or later first on PATH, and an image by the name of debian:bookworm-slim).
Making a file or folder is the floor of whatever keeps records of trials, so its price here is printed too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from free_sandbox import install
from machine_pace import MachinePace
from scratch import scratch

from proctor.engine.stop import Stop
from proctor.runs.process_resources import Resources
from proctor.runs.running import create, execute
from proctor.settings import Settings
from proctor.spec.load import from_mapping

HARBOR = Path(__file__).with_name("harbor_trials.py")


def make_task(folder: Path, files: int = 0, network: str = 'network_mode = "no-network"\n') -> Path:
    """A task whose solution is one echo, with as many other files as asked for."""
    contents = {
        "task.toml": f'schema_version = "1.4"\n[environment]\n{network}',
        "instruction.md": "Write hello to /app/hello.txt.\n",
        "environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n",
        "solution/solve.sh": "#!/bin/bash\necho hello > /app/hello.txt\n",
        "tests/test.sh": "#!/bin/bash\ngrep -q hello /app/hello.txt && echo 1 > /logs/verifier/reward.txt\n",
    }
    contents |= {f"environment/data/{number}.txt": f"{number}\n" * 50 for number in range(files)}
    for name, text in contents.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        if name.endswith(".sh"):
            place.chmod(0o755)
    return folder


class Silent:
    """Counts outcomes, prints nothing."""

    def __init__(self) -> None:
        self.outcomes: dict[str, int] = {}

    def started(self, trial: object, lease: object) -> None:
        """Nothing to say."""

    def ended(self, trial: object, record: object, counts: bool) -> None:  # noqa: ARG002 - the engine's call
        """One more."""
        name = str(record.outcome)  # type: ignore[attr-defined]
        self.outcomes[name] = self.outcomes.get(name, 0) + 1


def cpu_s(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def run_proctor(task: Path, rollouts: int, parallel: int, sandbox: str, home: Path) -> dict[str, float]:
    """Per-trial figures of one run, after a first trial that builds the image."""
    settings = Settings(home=home / ".proctor", rollouts_dir=home / "rollouts")
    for count in (1, rollouts):
        entry = {"path": str(task), "agent": "oracle", "rollouts": count}
        root = {"backend": sandbox, "host_root": sandbox == "bubblewrap"}
        spec = from_mapping({"name": "cost", "tasks": [entry], "parallel": parallel, "sandbox": root})
        before = cpu_s(resource.RUSAGE_SELF), cpu_s(resource.RUSAGE_CHILDREN), time.perf_counter()
        ear = Silent()
        job = create(spec, {}, Resources(settings))
        asyncio.run(run_job(job, ear))
        own = cpu_s(resource.RUSAGE_SELF) - before[0]
        below = cpu_s(resource.RUSAGE_CHILDREN) - before[1]
        wall = time.perf_counter() - before[2]
        assert ear.outcomes == {"passed": count}, ear.outcomes
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "controller_ms": own / rollouts * 1e3,
        "all_ms": (own + below) / rollouts * 1e3,
        "trials_per_s": rollouts / wall,
        "memory_mb": memory,
    }


def file_floor_ms(rounds: int = 500) -> float:
    """CPU of making one small file in a fresh folder."""
    with tempfile.TemporaryDirectory() as folder:
        before = time.process_time()
        for number in range(rounds):
            fd = os.open(f"{folder}/{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            os.write(fd, b"small")
            os.close(fd)
        return (time.process_time() - before) / rounds * 1e3


async def run_job(job: object, ear: Silent) -> None:
    await execute(job, listener=ear, stop=Stop())  # type: ignore[arg-type]


def run_harbor(
    python: str, task: Path, rollouts: int, environment: str, how: str = "trials"
) -> dict[str, float] | None:
    """The same task through Harbor's trial loop, in its own interpreter."""
    done = subprocess.run(
        [python, str(HARBOR), str(task), str(rollouts), environment, how],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HARBOR_TELEMETRY": "0", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    )
    if done.returncode:
        print(f"harbor ({environment}) did not run: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--harbor", metavar="PYTHON")
    parser.add_argument("--harbor-rollouts", type=int, default=20)
    parser.add_argument("--harbor-job", type=int, metavar="N")
    parser.add_argument("--harbor-podman", action="store_true")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}; making a small file here: {file_floor_ms():.3f} ms CPU")
    print(f"{'what':<44} {'controller':>10} {'all ms':>8} {'trials/s':>9} {'MB':>6}   (CPU per trial)")
    # Nothing is deleted before all is measured: ext4 without a journal makes files slowly for minutes where
    # many were deleted. For the same reason the peer comes first, before our sandboxes come and go.
    with MachinePace() as pace, scratch() as folder:
        small = make_task(folder / "small")
        large = make_task(folder / "large", files=400)
        if options.harbor:
            harbor_rows(options, folder, small)
        for count in options.sizes:
            show(
                f"proctor, bubblewrap, {count} trials",
                run_proctor(small, count, options.parallel, "bubblewrap", folder / f"home-{count}"),
            )
        count = max(options.sizes)
        show(
            f"proctor, a free sandbox, {count} trials",
            run_proctor(small, count, options.parallel, install(), folder / "home-free"),
        )
        show(
            "proctor, bubblewrap, task of 400 files, 100",
            run_proctor(large, 100, options.parallel, "bubblewrap", folder / "home-large"),
        )
    print(pace.text)


def harbor_rows(options: argparse.Namespace, folder: Path, task: Path) -> None:
    """What the peer needs, one row for each of its environments."""
    rows = [(environment, options.harbor_rollouts, "trials") for environment in ("spawn", "bwrap", "overlay")]
    if options.harbor_job:
        rows += [(environment, options.harbor_job, "job") for environment in ("bwrap", "overlay")]
    if options.harbor_podman:
        rows.append(("podman", 3, "trials"))
    for environment, count, how in rows:
        # Harbor's podman has no way to leave the network out.
        given = make_task(folder / "open", network="") if environment == "podman" else task
        found = run_harbor(options.harbor, given, count, environment, how)
        if found:
            version = found.pop("version", "")
            show(
                f"harbor {version}, {environment}, {count} {'in a job' if how == 'job' else 'trials'}", found
            )


def show(name: str, found: dict[str, float]) -> None:
    cells = [found.get(key) for key in ("controller_ms", "all_ms", "trials_per_s", "memory_mb")]
    widths = (10, 8, 9, 6)
    text = " ".join(
        f"{cell:{w}.1f}" if cell is not None else " " * (w - 1) + "–"
        for cell, w in zip(cells, widths, strict=True)
    )
    print(f"{name:<44} {text}", flush=True)


if __name__ == "__main__":
    main()
