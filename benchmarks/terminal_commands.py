"""What a command of the `terminal` agent costs: over a line to its shell, and as an exec of its own.

In turns, in sandboxes of this machine's own system: CPU of this process, and of the sandbox by its control
group, for the start of the shell, for each command, and for the end. A plain exec of `true` is beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from machine_pace import MachinePace
from scratch import scratch

from proctor.agents.base import AgentContext
from proctor.agents.terminal.session import Session
from proctor.agents.trajectory import Trajectory
from proctor.sandbox.base import Root, SandboxRequest
from proctor.sandbox.bubblewrap import Bubblewrap, BubblewrapSandbox

REST_S = 0.01
LONG_S = 60.0


class WithoutLines:
    """The same sandbox, as a kind that passes no descriptors."""

    def __init__(self, inside: BubblewrapSandbox) -> None:
        self._inside = inside

    def __getattr__(self, name: str) -> Any:
        if name == "dial":
            raise AttributeError(name)
        return getattr(self._inside, name)


class Costs:
    """CPU in ms, of this process and inside, by what it was for."""

    def __init__(self) -> None:
        self.found: dict[str, list[tuple[float, float]]] = defaultdict(list)

    async def of(self, name: str, sandbox: BubblewrapSandbox, work: Callable[[], Awaitable[object]]) -> None:
        def used() -> tuple[float, float]:
            return time.process_time(), float(sandbox.info().ledger["cpu_s"])

        before = used()
        await work()
        after = used()
        await asyncio.sleep(REST_S)  # what was started may end a little later
        late = used()
        self.found[name].append(((after[0] - before[0]) * 1e3, (late[1] - before[1]) * 1e3))


async def one(costs: Costs, sandbox: BubblewrapSandbox, way: str, commands: int) -> None:
    trajectory = Trajectory(session_id="s", agent="terminal", version="1")
    context = AgentContext(instruction="", workdir="/", trajectory=trajectory, log=lambda *_: None)
    place: Any = sandbox if way == "line" else WithoutLines(sandbox)
    shell = Session(place, context)
    await costs.of(f"{way}: start", sandbox, shell.open)
    for _ in range(commands):
        await costs.of(f"{way}: command", sandbox, lambda: shell.run("true", LONG_S))
    await costs.of(f"{way}: end", sandbox, shell.close)
    await costs.of("an exec of true", sandbox, lambda: sandbox.exec(["true"], timeout_s=LONG_S))


async def measure(sandboxes: int, commands: int, home: Path) -> Costs:
    costs, backend = Costs(), Bubblewrap(home / ".proctor")
    for number in range(2 * sandboxes):
        sandbox = backend.sandbox(SandboxRequest(name=f"terminal-{number}", root=Root(host=True)))
        await sandbox.start()
        await one(costs, sandbox, ("line", "execs")[number % 2], commands)
        await sandbox.stop()
    await backend.close()
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sandboxes", type=int, default=40, help="for each way")
    parser.add_argument("--commands", type=int, default=8, help="in each sandbox")
    options = parser.parse_args()
    with MachinePace() as pace, scratch() as home:
        costs = asyncio.run(measure(options.sandboxes, options.commands, home))
    print(f"{'ms CPU, medians':<20}{'controller':>12}{'inside':>10}")
    for name, rows in sorted(costs.found.items()):
        own, inside = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"{name:<20}{own:>12.2f}{inside:>10.2f}")
    print(pace.text)


if __name__ == "__main__":
    main()
