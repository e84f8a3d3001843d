"""Rounds of a measurement: reference and program in turns, each time in fresh sandboxes on the same input.

Nothing of a round reaches the next one, and nothing of the agent's runs while the reference does.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import HostError, SandboxError
from proctor.model.record import QUANTITIES, Round
from proctor.model.task import PerformanceSpec
from proctor.quantity import show
from proctor.sandbox.base import Sandbox, end_processes
from proctor.trial.performance.executions import (
    MAX_OUTPUT_BYTES,
    Execution,
    Measured,
    ProgramFailedError,
    execute,
)
from proctor.trial.task.blame import is_hosts, lost_to_host

SEED = "PROCTOR_SEED"
INPUTS = "/inputs"
_LOGS = "/logs/verifier"
_MAX_INPUT_BYTES = 1 << 30
_SEED_BITS = 31


class ReferenceFailedError(Exception):
    """The author's own program, or what the author checks it with, does not work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What every round needs."""

    spec: PerformanceSpec
    make: Callable[[str, Path], Sandbox]
    """A sandbox by the end of its name and the state that it begins with."""
    reference: Path
    program: Path
    """The states that the sandboxes begin with."""
    tests: Path | None
    cwd: str
    user: str | None
    env: Mapping[str, str]
    rng: random.Random
    first: Sequence[bool]
    """Round by round, whether the reference has the first turn."""
    say: Callable[[str], None]

    def execution(self, seed: int) -> Execution:
        """What both sides execute."""
        spec = self.spec
        return Execution(
            command=spec.command,
            metric=spec.metric,
            timeout_s=spec.timeout_s,
            cwd=self.cwd,
            user=self.user,
            env={**self.env, SEED: str(seed)},
        )


async def measure_round(bench: Bench, number: int) -> Round:
    """One round; ProgramFailedError when the program is at fault, ReferenceFailedError when the author is."""
    seed, first = bench.rng.getrandbits(_SEED_BITS), bench.first[number]
    asked = bench.execution(seed)
    with tempfile.TemporaryDirectory(prefix="proctor-round-") as name:
        scratch = Path(name)
        async with _sandbox(bench, f"reference-{number}", bench.reference) as own:
            await _make_ready(bench, own, INPUTS)
            inputs = await _make_inputs(bench, own, asked, scratch / "inputs")
            if first:
                expected = await _reference(own, asked)
            found = await _program(bench, number, asked, inputs)
            if not first:
                expected = await _reference(own, asked)
            if not number and not await _accepts(bench, own, asked, expected, expected):
                raise ReferenceFailedError("the command of 'check' refuses the output of the reference")
            if not await _accepts(bench, own, asked, expected, found):
                raise ProgramFailedError("its output is not what the reference's is on the same input")
    quantity = QUANTITIES[bench.spec.metric]
    what = f"round {number}" if number else "warm-up"
    values = [show(quantity, each.value) for each in (expected, found)]
    bench.say(f"{what}, seed {seed}: reference {values[0]}, program {values[1]}")
    return Round(
        number=number,
        seed=seed,
        order="rp" if first else "pr",
        reference=expected.value,
        program=found.value,
    )


@asynccontextmanager
async def _sandbox(bench: Bench, suffix: str, state: Path) -> AsyncIterator[Sandbox]:
    sandbox = bench.make(suffix, state)
    try:
        await sandbox.start()
        yield sandbox
    finally:
        await sandbox.stop()


async def _make_ready(bench: Bench, sandbox: Sandbox, *fresh: str) -> None:
    await end_processes(sandbox, fresh=["/tests", _LOGS, *fresh])
    if bench.tests:
        await sandbox.upload(bench.tests, "/tests")


async def _make_inputs(bench: Bench, sandbox: Sandbox, asked: Execution, place: Path) -> Path | None:
    """Let the author's command fill `/inputs`, where the agent's files cannot touch it."""
    if not bench.spec.inputs:
        return None
    result = await sandbox.exec(
        ["/bin/sh", "-c", bench.spec.inputs], env=asked.env, cwd="/", user="root", timeout_s=asked.timeout_s
    )
    if result.exit_code or result.timed_out:
        said = result.stderr.decode(errors="replace").strip()[-300:]
        raise ReferenceFailedError(f"the command of 'inputs' failed (exit code {result.exit_code}): {said}")
    await end_processes(sandbox)
    place.mkdir()
    try:
        found = await sandbox.download(INPUTS, place, max_bytes=_MAX_INPUT_BYTES)
    except FileNotFoundError:
        found = None
    if not found or not found.files or found.dropped_count:
        raise ReferenceFailedError(f"the command of 'inputs' left no plain files of at most 1 GB in {INPUTS}")
    return place


async def _reference(sandbox: Sandbox, asked: Execution) -> Measured:
    try:
        return await execute(sandbox, asked)
    except ProgramFailedError as error:
        _excuse_host(sandbox)
        raise ReferenceFailedError(f"the reference cannot be measured: {error}") from error


async def _program(bench: Bench, number: int, asked: Execution, inputs: Path | None) -> Measured:
    """The agent's side. What breaks there is the program's fault unless it is provably the machine's."""
    sandbox = bench.make(f"program-{number}", bench.program)
    try:
        return await _blaming_program(sandbox, lambda: _run_program(bench, sandbox, asked, inputs))
    finally:
        await sandbox.stop()


async def _run_program(bench: Bench, sandbox: Sandbox, asked: Execution, inputs: Path | None) -> Measured:
    await sandbox.start()
    await _make_ready(bench, sandbox, INPUTS)
    if inputs:
        await sandbox.upload(inputs, INPUTS)
    return await execute(sandbox, asked)


async def _blaming_program(sandbox: Sandbox, run: Callable[[], Awaitable[Measured]]) -> Measured:
    try:
        return await run()
    except ProgramFailedError:
        _excuse_host(sandbox)
        raise
    except SandboxError as error:
        if await is_hosts(error, sandbox):
            raise
        _excuse_host(sandbox)
        raise ProgramFailedError(f"its sandbox broke: {error}") from error


def _excuse_host(sandbox: Sandbox) -> None:
    """An execution that the machine killed says nothing about the program."""
    if lost := lost_to_host(sandbox.info().ledger):
        raise HostError(lost[1].message)


async def _accepts(
    bench: Bench, sandbox: Sandbox, asked: Execution, expected: Measured, found: Measured
) -> bool:
    """Whether an output is right: the reference's, or one that the author's command accepts.

    The command runs in a sandbox that has nothing of the agent's but this output.
    """
    if not bench.spec.check:
        return found.digest == expected.digest
    if max(len(found.output), len(expected.output)) >= MAX_OUTPUT_BYTES:
        return False
    await _make_ready(bench, sandbox)
    with tempfile.TemporaryDirectory(prefix="proctor-outputs-") as place:
        Path(place, "output").write_bytes(found.output)
        Path(place, "expected").write_bytes(expected.output)
        await sandbox.upload(Path(place), _LOGS)
    result = await sandbox.exec(
        ["/bin/sh", "-c", bench.spec.check],
        env=asked.env,
        cwd="/",
        user="root",
        timeout_s=asked.timeout_s,
    )
    if result.exit_code and result.stdout:
        bench.say(f"the check says: {result.stdout.decode(errors='replace').strip()[-300:]}")
    return not (result.exit_code or result.timed_out)
