"""What a podman sandbox costs beside bare podman: `run`, `exec` and `rm` by hand, in turns with our own.

Each round takes both, in changing order, so that what else the machine does meets both alike. CPU time is
that of this process and of the commands it waits for; what an engine leaves running is in neither figure.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from proctor.sandbox.base import Root, SandboxRequest
from proctor.sandbox.container.backend import Containers
from proctor.sandbox.container.engine import PODMAN, call

TARGET = 1.3


async def bare(backend: Containers, image: str, number: int, execs: int) -> None:
    """What a person would type."""
    fit = await backend.adjustment()
    name = f"proctor-bench-{os.getpid()}-{number}"
    podman = [backend.engine.program, *fit.options]
    said = [
        await call(
            [*podman, "run", "-d", "--name", name, "--network", "none", *fit.ulimits, image, "sleep", "999"]
        )
    ]
    said += [await call([*podman, "exec", name, "true"]) for _ in range(execs)]
    said.append(await call([*podman, "rm", "-f", "-t", "0", name]))
    assert not any(each.code for each in said), said


async def ours(backend: Containers, image: str, execs: int) -> None:
    """The same as a sandbox."""
    sandbox = backend.sandbox(SandboxRequest(name="bench", root=Root(image=image)))
    await sandbox.start()
    for _ in range(execs):
        assert (await sandbox.exec(["true"])).exit_code == 0
    await sandbox.stop()


def cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def host_image() -> str:
    script = Path(__file__).parents[1] / "scripts/host_image.py"
    made = subprocess.run([sys.executable, script, "podman"], capture_output=True, text=True, check=True)
    return made.stdout.strip()


async def measure(image: str, rounds: int, execs: int) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {"bare podman": [], "proctor": []}
    with tempfile.TemporaryDirectory() as home:
        backend = Containers(PODMAN, Path(home))
        await ours(backend, image, 1)
        for number in range(rounds):
            for name in sorted(found, reverse=bool(number % 2)):
                wall, cpu = time.perf_counter(), cpu_s()
                await (
                    bare(backend, image, number, execs)
                    if name == "bare podman"
                    else ours(backend, image, execs)
                )
                found[name].append((time.perf_counter() - wall, cpu_s() - cpu))
        await backend.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    image, worst = host_image(), 0.0
    print(f"{'execs':>5}  {'':12}  {'wall ms':>8}  {'CPU ms':>7}")
    for execs in (1, 10):
        found = asyncio.run(measure(image, options.rounds, execs))
        for name, rows in found.items():
            wall, cpu = (statistics.median(column) * 1e3 for column in zip(*rows, strict=True))
            print(f"{execs:5}  {name:12}  {wall:8.0f}  {cpu:7.0f}")
        pairs = zip(found["proctor"], found["bare podman"], strict=True)
        ratio = statistics.median(one[0] / other[0] for one, other in pairs)
        worst = max(worst, ratio)
        print(f"{execs:5}  {'ratio':12}  {ratio:8.2f}")
    print(f"target: at most {TARGET} × bare podman; {'met' if worst <= TARGET else 'missed'}")
    return 0 if worst <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
