"""Judge the final state of a sandbox. The agent's processes are ended before the tests arrive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from proctor.model.outcome import Outcome, from_reward
from proctor.model.record import Failure
from proctor.model.task import Rubric, VerifierSpec
from proctor.sandbox.base import Before, Sandbox, end_processes, exec_after
from proctor.trial.logs import Logs
from proctor.trial.task.reward import Reward, RewardInvalid, RewardMissing, read_reward

LOG = "eval.log"
"""What the tests print."""
_MAX_LOGS_BYTES = 64 << 20
FRESH = ("/tests", "/logs/verifier")
"""Folders that are emptied before tests arrive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the verifier found."""

    outcome: Outcome
    reward: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    failure: Failure | None = None


async def verify(
    sandbox: Sandbox,
    *,
    tests: Sequence[Path],
    spec: VerifierSpec,
    env: Mapping[str, str],
    cwd: str,
    logs: Logs,
    keep: Path,
    fresh: Sequence[str] = (),
) -> Verdict:
    """Run `test.sh` in a quiet sandbox and read the reward. Files it left go to `keep`.

    Folders of `tests` are laid over each other; without any the sandbox's own `/tests` is used.
    """

    def on_output(_: Literal["stdout", "stderr"], data: bytes) -> None:
        logs.write(LOG, data)

    result = await exec_after(
        sandbox,
        Before(
            quiet=True,
            fresh=[*(FRESH if tests else FRESH[1:]), *fresh],
            copies=[(each, "/tests") for each in tests],
        ),
        ["/bin/bash", "/tests/test.sh"],
        env=env,
        cwd=cwd,
        user=spec.user,
        timeout_s=spec.timeout_s,
        on_output=on_output,
        keep_bytes=4096,
    )
    await download_logs(sandbox, keep)
    if result.timed_out:
        message = f"the tests did not end within {spec.timeout_s:g} s"
        return _broken(Outcome.VERIFIER_TIMEOUT, "VerifierTimeout", message)
    return judge(keep, result.exit_code)


def judge(folder: Path, exit_code: int) -> Verdict:
    """The verdict that the verifier's files mean. The exit code alone never makes a pass."""
    try:
        reward: Reward = read_reward(folder)
    except RewardMissing as error:
        return _broken(Outcome.VERIFIER_ERROR, "RewardMissing", f"{error} (exit code {exit_code})")
    except RewardInvalid as error:
        return _broken(Outcome.REWARD_INVALID, "RewardInvalid", str(error))
    return Verdict(outcome=from_reward(reward.value), reward=reward.value, parts=reward.parts)


async def prepare(sandbox: Sandbox, tests: Path, fresh: Sequence[str] = ()) -> None:
    """End what the agent left running, then copy in the tests and an empty reward folder."""
    await end_processes(sandbox, fresh=[*FRESH, *fresh])
    await sandbox.upload(tests, "/tests")


async def download_logs(sandbox: Sandbox, keep: Path) -> None:
    """What the verifier wrote, copied out without following links once nothing runs any more."""
    await end_processes(sandbox)
    try:
        await sandbox.download("/logs/verifier", keep, max_bytes=_MAX_LOGS_BYTES)
    except FileNotFoundError:
        keep.mkdir(parents=True, exist_ok=True)


async def verify_rubrics(
    sandbox: Sandbox,
    *,
    tests: Path,
    rubrics: tuple[Rubric, ...],
    spec: VerifierSpec,
    env: Mapping[str, str],
    cwd: str,
    logs: Logs,
    fresh: Sequence[str] = (),
) -> tuple[Verdict, list[dict[str, object]]]:
    """Run each rubric's scripts. A rubric that nothing tests is untested and leaves the denominator."""
    await prepare(sandbox, tests, fresh)
    rows: list[dict[str, object]] = []
    for rubric in rubrics:
        scores = []
        for script in rubric.tests:
            logs.write(LOG, f"== {rubric.id}: {script}\n".encode())
            result = await sandbox.exec(
                ["/bin/sh", "-c", _RUN_SCRIPT, interpreter_of(tests / script), f"/tests/{script}"],
                env=env,
                cwd=cwd,
                user=spec.user,
                timeout_s=spec.timeout_s,
                on_output=lambda _, data: logs.write(LOG, data),
                keep_bytes=4096,
            )
            await end_processes(sandbox)
            scores.append(0.0 if result.exit_code or result.timed_out else 1.0)
        rows.append(
            {
                "id": rubric.id,
                "description": rubric.description,
                "weight": rubric.weight,
                "unit_score": min(scores) if scores else None,
                "judge_score": None,
                "status": "tested" if scores else "untested",
            }
        )
    return rubric_verdict(rows), rows


_RUN_SCRIPT = 'chmod +x "$1"; if [ -n "$0" ]; then exec "$0" "$1"; fi; exec "$1"'
_INTERPRETERS = {
    ".sh": "/bin/sh",
    ".bash": "bash",
    ".py": "python3",
    ".js": "node",
    ".mjs": "node",
    ".pl": "perl",
    ".rb": "ruby",
}


def interpreter_of(script: Path) -> str:
    """What runs a script that does not say so itself, by its extension; empty when it can be executed."""
    try:
        with script.open("rb") as file:
            start = file.read(4)
    except OSError:
        return ""
    executable = start.startswith(b"#!") or start == b"\x7fELF"
    return "" if executable else _INTERPRETERS.get(script.suffix.lower(), "")


def rubric_verdict(rows: list[dict[str, object]]) -> Verdict:
    """The weighted mean of the rubrics that something tested."""
    tested = [
        (float(str(row["weight"])), float(str(row["unit_score"])))
        for row in rows
        if row["status"] == "tested"
    ]
    weight = sum(each for each, _ in tested)
    if not weight:
        return _broken(Outcome.VERIFIER_ERROR, "NothingTested", "no rubric with a weight has a test script")
    reward = sum(each * score for each, score in tested) / weight
    return Verdict(outcome=from_reward(reward), reward=reward, parts={"reward": reward})


def _broken(outcome: Outcome, kind: str, message: str) -> Verdict:
    return Verdict(outcome=outcome, failure=Failure(phase="verify", type=kind, message=message))
