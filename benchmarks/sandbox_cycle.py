"""What a sandbox costs: start, run `true`, stop; a command in a running one; memory of an idle one.

Bare bubblewrap (a read-only bind of the host, no overlay, no exec into it) and a bare process are measured in
the same run, alternating with ours, because figures of different minutes cannot be compared. CPU is that of
the controller, the keeper, every init and every command together, from the kernel's own accounts.

    python benchmarks/sandbox_cycle.py
    python benchmarks/sandbox_cycle.py --cycles 300 --json sandbox.json
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from proctor.sandbox.base import Limits, Root, SandboxRequest
from proctor.sandbox.bubblewrap import Bubblewrap, BubblewrapSandbox

TRUE = shutil.which("true") or "/bin/true"
BWRAP = [
    "bwrap", "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session",
    "--ro-bind", "/usr", "/usr",
    "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
    "--proc", "/proc", "--dev", "/dev", "--", TRUE,
]  # fmt: skip
"""As root this is no sandbox (it stays root); it stands here for what starting one costs."""


def cpu_s() -> float:
    """CPU of this process and of every process it has started and collected."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def spawn(argv: list[str]) -> float:
    """Start a program, wait for it; milliseconds."""
    started = time.perf_counter()
    pid = os.posix_spawn(shutil.which(argv[0]) or argv[0], argv, {})
    os.waitpid(pid, 0)
    return (time.perf_counter() - started) * 1e3


def request(number: int) -> SandboxRequest:
    """A sandbox of the host's own system."""
    return SandboxRequest(name=f"b{number}", root=Root(host=True, workdir="/app"), limits=Limits(pids=100))


async def cycle(backend: Bubblewrap, number: int) -> tuple[float, float, float]:
    """Start, run `true`, stop; milliseconds of each."""
    sandbox = backend.sandbox(request(number))
    marks = [time.perf_counter()]
    await sandbox.start()
    marks.append(time.perf_counter())
    await sandbox.exec([TRUE])
    marks.append(time.perf_counter())
    await sandbox.stop()
    marks.append(time.perf_counter())
    start, run, stop = ((later - earlier) * 1e3 for earlier, later in itertools.pairwise(marks))
    return start, run, stop


async def cpu_per_cycle(open_backend: Callable[[], Bubblewrap], cycles: int) -> float:
    """Milliseconds of CPU; the keeper's own start is taken off by a run without cycles."""

    async def run(count: int) -> float:
        before = cpu_s()
        backend = open_backend()
        for number in range(1 + count):
            await cycle(backend, number)
        await backend.close()
        return cpu_s() - before

    return (await run(cycles) - await run(0)) / cycles * 1e3


def cpu_per_spawn(argv: list[str], count: int) -> float:
    """Milliseconds of CPU."""
    before = cpu_s()
    for _ in range(count):
        spawn(argv)
    return (cpu_s() - before) / count * 1e3


async def alternating(backend: Bubblewrap, cycles: int, *, bwrap: bool) -> dict[str, list[float]]:
    """Ours, bare bubblewrap and bare processes, one after the other in each round."""
    found: dict[str, list[float]] = {"start": [], "exec": [], "stop": [], "bwrap": [], "spawn": []}
    running = backend.sandbox(request(0))
    await running.start()
    await cycle(backend, 1)
    found["warm"] = []
    for number in range(cycles):
        for name, value in zip(("start", "exec", "stop"), await cycle(backend, number), strict=True):
            found[name].append(value)
        started = time.perf_counter()
        await running.exec([TRUE])
        found["warm"].append((time.perf_counter() - started) * 1e3)
        found["spawn"].append(spawn([TRUE]))
        if bwrap:
            found["bwrap"].append(spawn(BWRAP))
    await running.stop()
    return found


async def throughput(work: Callable[[int], Awaitable[Any]], total: int, parallel: int) -> float:
    """How many per second with so many at once."""
    numbers = iter(range(total))

    async def worker() -> None:
        for number in numbers:
            await work(number)

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(parallel)))
    return total / (time.perf_counter() - started)


def memory_bytes(pid: int) -> int:
    """Memory that only this process holds, and its share of the rest."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(text.split("Pss:")[1].split()[0]) * 1024


async def idle_memory(backend: Bubblewrap, count: int) -> dict[str, float]:
    """What each of many idle sandboxes takes here and in its init, and in the kernel, in kilobytes."""
    before_own, before_free = memory_bytes(os.getpid()), _available()
    sandboxes: list[BubblewrapSandbox] = []
    for number in range(count):
        sandboxes.append(backend.sandbox(request(number)))
        await sandboxes[-1].start()
    own = memory_bytes(os.getpid()) - before_own
    inits = sum(memory_bytes(each.init_pid) for each in sandboxes)
    machine = before_free - _available()
    await asyncio.gather(*(each.stop() for each in sandboxes))
    return {
        "controller_kb": own / count / 1024,
        "init_kb": inits / count / 1024,
        "machine_kb": machine / count / 1024,
    }


def _available() -> int:
    text = Path("/proc/meminfo").read_text()
    return int(text.split("MemAvailable:")[1].split()[0]) * 1024


async def remove_cache(backend: Bubblewrap, home: Path) -> None:
    """Layers belong to the ids of the sandboxes: an ordinary user needs the keeper to remove them."""
    if os.geteuid() == 0:
        await backend.close()
        return
    folder = os.open(home, os.O_RDONLY)
    await (await backend.keeper()).remove("cache", folder)
    os.close(folder)
    await backend.close()


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Everything, as one record."""
    bwrap = bool(shutil.which("bwrap"))
    with tempfile.TemporaryDirectory() as folder:

        def open_backend() -> Bubblewrap:
            return Bubblewrap(Path(folder))

        backend = open_backend()
        times = await alternating(backend, options.cycles, bwrap=bwrap)
        rate = await throughput(lambda number: cycle(backend, number), options.cycles, 16)
        memory = await idle_memory(backend, options.idle)
        cgroups = backend.cgroups.version if backend.cgroups else None
        await backend.close()
        cpu = await cpu_per_cycle(open_backend, options.cycles)
        await remove_cache(open_backend(), Path(folder))
    medians = {name: statistics.median(values) for name, values in times.items() if values}
    return {
        "user": "root" if os.geteuid() == 0 else "ordinary",
        "cgroups": cgroups,
        "load": os.getloadavg()[0],
        "median_ms": medians,
        "exec_over_floor_ms": medians["warm"] - medians["spawn"],
        "cpu_ms": {
            "cycle": cpu,
            "spawn": cpu_per_spawn([TRUE], options.cycles),
            **({"bwrap": cpu_per_spawn(BWRAP, options.cycles)} if bwrap else {}),
        },
        "cycles_per_s_16_parallel": rate,
        "idle": memory,
    }


def show(found: dict[str, Any]) -> None:
    """The record as a table."""
    times, cpu = found["median_ms"], found["cpu_ms"]
    cgroups = f"cgroup v{found['cgroups']}" if found["cgroups"] else "rlimits"
    print(f"{found['user']} user, {cgroups}, load {found['load']:.1f}\n")
    print("| what | median ms | CPU ms | target |")
    print("|---|---|---|---|")
    print(f"| bare process | {times['spawn']:.2f} | {cpu['spawn']:.2f} | |")
    if "bwrap" in cpu:
        print(f"| bare bubblewrap, read-only, one command | {times['bwrap']:.2f} | {cpu['bwrap']:.2f} | |")
    total = times["start"] + times["exec"] + times["stop"]
    print(f"| cycle: start + `true` + stop | {total:.2f} | {cpu['cycle']:.2f} | CPU ≤ 6–8 |")
    print(f"| start | {times['start']:.2f} | | 8 |")
    print(f"| first command | {times['exec']:.2f} | | |")
    print(f"| stop | {times['stop']:.2f} | | 3 |")
    print(f"| a command in a running sandbox | {times['warm']:.2f} | | |")
    print(f"| … over a bare process | {found['exec_over_floor_ms']:.2f} | | 1 |")
    print(f"\n{found['cycles_per_s_16_parallel']:.0f} cycles/s at 16 parallel (target 200)")
    idle = found["idle"]
    print(
        f"an idle sandbox: {idle['controller_kb']:.0f} kB in the controller, "
        f"{idle['init_kb']:.0f} kB in its init, {idle['machine_kb']:.0f} kB of the machine's memory in all"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--idle", type=int, default=100, help="idle sandboxes to weigh")
    parser.add_argument("--json", type=Path, help="write the record here as well")
    options = parser.parse_args()
    found = asyncio.run(measure(options))
    show(found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
