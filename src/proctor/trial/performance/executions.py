"""One execution of a program in a fresh sandbox, and what it took: measured from outside the program."""

from __future__ import annotations

import asyncio
import hashlib
import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Literal

from proctor.model.task import PerformanceMetric
from proctor.sandbox.base import ExecResult, Sandbox, end_processes

METRIC_FILE = "/logs/verifier/metric.txt"
"""Where a command writes its own number."""
MAX_OUTPUT_BYTES = 64 << 20
_COUNT = "set -- /proc/[0-9]*; echo $#"
_SETTLE_S = 0.5
_MAX_NUMBER_BYTES = 256


class ProgramFailedError(Exception):
    """An execution that is worth nothing: it failed, hung, or did not end with its command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one execution took and printed."""

    value: float
    output: bytes
    digest: str
    """Of the whole output, which may be longer than what is kept."""


@dataclass(slots=True)
class _Output:
    """What a command prints, as far as it is kept."""

    kept: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)
    whole: hashlib._Hash = field(default_factory=hashlib.sha256)

    def take(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        if stream == "stderr":
            self.errors = (self.errors + data)[-2000:]
            return
        self.whole.update(data)
        self.kept += data[: max(0, MAX_OUTPUT_BYTES - len(self.kept))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What is executed, alike for reference and program."""

    command: str
    metric: PerformanceMetric
    timeout_s: float
    cwd: str
    user: str | None
    env: Mapping[str, str]


async def execute(sandbox: Sandbox, asked: Execution) -> Measured:
    """Run the command once and end everything after it; ProgramFailedError when it is worth nothing."""
    output = _Output()
    # Twice, because what made the sandbox ready may be about to end: it must not hide a process of later.
    counts = [await _processes(sandbox) for _ in range(2)]
    before = min((each for each in counts if each is not None), default=None)
    cpu_before = _counted_cpu_s(sandbox)
    result = await sandbox.exec(
        ["/bin/sh", "-c", asked.command],
        env=asked.env,
        cwd=asked.cwd,
        user=asked.user,
        timeout_s=asked.timeout_s,
        on_output=output.take,
        keep_bytes=0,
    )
    left = not result.timed_out and await _left_running(sandbox, before)
    cpu_s = _counted_cpu_s(sandbox)
    await end_processes(sandbox)
    _must_be_good(result, asked, bytes(output.errors), left=left)
    counted = cpu_s - cpu_before if cpu_s is not None and cpu_before is not None else 0.0
    value = await _value(sandbox, result, asked.metric, counted)
    if not math.isfinite(value) or value <= 0:
        raise ProgramFailedError(f"its {asked.metric} is {value:g}, which is no amount to compare")
    return Measured(value=value, output=bytes(output.kept), digest=output.whole.hexdigest())


def _must_be_good(result: ExecResult, asked: Execution, errors: bytes, *, left: bool) -> None:
    last = errors.decode(errors="replace").strip().rpartition("\n")[2][:300]
    said = f": {last}" if last else ""
    if result.timed_out:
        raise ProgramFailedError(f"it did not end within {asked.timeout_s:g} s")
    if result.oom_killed:
        raise ProgramFailedError("it was killed at the memory limit of the task")
    if result.exit_code:
        raise ProgramFailedError(f"it ended with exit code {result.exit_code}{said}")
    if left:
        raise ProgramFailedError("it left a process running after it had ended")


async def _value(sandbox: Sandbox, result: ExecResult, metric: PerformanceMetric, counted_s: float) -> float:
    if metric == "time":
        return result.wall_s
    if metric == "cpu":
        return max(result.cpu_s, counted_s)
    if metric == "memory":
        return float(result.peak_memory_bytes or 0)
    with tempfile.TemporaryDirectory(prefix="proctor-metric-") as scratch:
        place = Path(scratch, "metric.txt")
        try:
            await sandbox.download(METRIC_FILE, place, max_bytes=_MAX_NUMBER_BYTES)
            return float(place.read_text())
        except (OSError, ValueError) as error:
            raise ProgramFailedError(f"{METRIC_FILE} is missing or holds no number") from error


def _counted_cpu_s(sandbox: Sandbox) -> float | None:
    """What the kernel counted for the whole sandbox; None where it does not."""
    found = sandbox.info().ledger.get("cpu_s")
    return float(found) if isinstance(found, int | float) else None


async def _processes(sandbox: Sandbox) -> int | None:
    """How many processes are inside, this question's own among them."""
    result = await sandbox.exec(["/bin/sh", "-c", _COUNT], cwd="/", user="root", timeout_s=30)
    text = result.stdout.strip()
    return int(text) if text.isdigit() else None


async def _left_running(sandbox: Sandbox, before: int | None) -> bool:
    """Whether more runs than before; what is only about to end gets a moment."""
    deadline = monotonic() + _SETTLE_S
    while True:
        now = await _processes(sandbox)
        if before is None or now is None or now <= before:
            return False
        if monotonic() > deadline:
            return True
        await asyncio.sleep(0.02)
