"""Judge the final state of a sandbox. The agent's processes are ended before the tests arrive."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from proctor.errors import HostError, SandboxError
from proctor.model.outcome import Outcome, from_reward
from proctor.model.record import Failure
from proctor.model.task import Rubric, Step, TestScript, VerifierSpec
from proctor.sandbox.base import Before, Sandbox, end_processes, exec_after
from proctor.trial.progress import Logs
from proctor.trial.task.declared import PUBLISHED, copy_in, copy_out, wanted
from proctor.trial.task.reward import RewardInvalid, RewardMissing, read_reward
from proctor.trial.task.sandboxes import Policy, sandbox_request, workdir_of
from proctor.trial.task.setting import filled

if TYPE_CHECKING:
    from proctor.trial.task_trial import TaskAttempt

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


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierInputs:
    """What the tests of a task or of a step run with."""

    spec: VerifierSpec
    env: Mapping[str, str]
    cwd: str
    logs: Logs
    fresh: Sequence[str] = ()
    """More folders to empty before."""


async def verify(sandbox: Sandbox, given: VerifierInputs, tests: Sequence[Path], keep: Path) -> Verdict:
    """Run `test.sh` in a quiet sandbox and read the reward. Files it left go to `keep`.

    Folders of `tests` are laid over each other; without any the sandbox's own `/tests` is used.
    """

    def on_output(_: Literal["stdout", "stderr"], data: bytes) -> None:
        given.logs.write(LOG, data)

    result = await exec_after(
        sandbox,
        Before(
            quiet=True,
            fresh=[*(FRESH if tests else FRESH[1:]), *given.fresh],
            copies=[(each, "/tests") for each in tests],
        ),
        ["/bin/bash", "/tests/test.sh"],
        env=given.env,
        cwd=given.cwd,
        user=given.spec.user,
        timeout_s=given.spec.timeout_s,
        on_output=on_output,
        keep_bytes=4096,
    )
    await end_processes(sandbox)
    try:  # nothing is followed, and nothing runs any more
        await sandbox.download("/logs/verifier", keep, max_bytes=_MAX_LOGS_BYTES)
    except FileNotFoundError:
        keep.mkdir(parents=True, exist_ok=True)
    if result.timed_out:
        message = f"the tests did not end within {given.spec.timeout_s:g} s"
        return _broken(Outcome.VERIFIER_TIMEOUT, "VerifierTimeout", message)
    verdict = judge(keep, result.exit_code)
    if verdict.reward is None and b"cannot run /bin/bash" in result.stderr:
        message = "the image has no /bin/bash, which tests/test.sh is run by; install bash in the image"
        return _broken(Outcome.VERIFIER_ERROR, "BashMissing", message)
    return verdict


def judge(folder: Path, exit_code: int) -> Verdict:
    """The verdict that the verifier's files mean. The exit code alone never makes a pass."""
    try:
        reward = read_reward(folder)
    except RewardMissing as error:
        return _broken(Outcome.VERIFIER_ERROR, "RewardMissing", f"{error} (exit code {exit_code})")
    except RewardInvalid as error:
        return _broken(Outcome.REWARD_INVALID, "RewardInvalid", str(error))
    return Verdict(outcome=from_reward(reward.value), reward=reward.value, parts=reward.parts)


async def verify_rubrics(
    sandbox: Sandbox, given: VerifierInputs, tests: Path, rubrics: Sequence[Rubric]
) -> tuple[Verdict, list[dict[str, object]]]:
    """Run each rubric's scripts; its score is the share that succeeds.

    A rubric that nothing tests is untested and leaves the denominator.
    """
    await end_processes(sandbox, fresh=[*FRESH, *given.fresh])
    if tests.is_dir():
        await sandbox.upload(tests, "/tests")
    await _write_scripts(sandbox, given.cwd, [each for rubric in rubrics for each in rubric.scripts])
    rows: list[dict[str, object]] = []
    for rubric in rubrics:
        commands = {
            **{each: [interpreter_of(tests / each), f"/tests/{each}"] for each in rubric.tests},
            **{each.path: _command(each) for each in rubric.scripts},
        }
        if any(command[0] == _PYTEST for command in commands.values()) and not await _has_pytest(
            sandbox, given
        ):
            said = (
                f"the image has no pytest, which '{rubric.id}' is tested with; install it in the Dockerfile"
            )
            return _broken(Outcome.VERIFIER_ERROR, "PytestMissing", said), rows
        scores = [
            await _passes(sandbox, given, f"{rubric.id}: {name}", command)
            for name, command in commands.items()
        ]
        rows.append(_row(rubric, sum(scores) / len(scores) if scores else None))
    return rubric_verdict(rows), rows


def _row(rubric: Rubric, unit_score: float | None) -> dict[str, object]:
    return {
        "id": rubric.id,
        "description": rubric.description,
        "weight": rubric.weight,
        "unit_score": unit_score,
        "judge_score": None,
        "status": "untested" if unit_score is None else "tested",
    }


def left_to_judge(attempt: TaskAttempt) -> Verdict:
    """Of a task without tests: the rubrics for its judge, and no reward yet."""
    attempt.rubrics = [_row(each, None) for each in attempt.task.rubrics]
    return Verdict(outcome=Outcome.FAILED)


async def _passes(sandbox: Sandbox, given: VerifierInputs, name: str, command: list[str]) -> bool:
    given.logs.write(LOG, f"== {name}\n".encode())
    result = await sandbox.exec(
        ["/bin/sh", "-c", _RUN_PYTEST if command[0] == _PYTEST else _RUN_SCRIPT, *command],
        env=given.env,
        cwd=given.cwd,
        user=given.spec.user,
        timeout_s=given.spec.timeout_s,
        on_output=lambda _, data: given.logs.write(LOG, data),
        keep_bytes=4096,
    )
    await end_processes(sandbox)
    return not (result.exit_code or result.timed_out)


async def _has_pytest(sandbox: Sandbox, given: VerifierInputs) -> bool:
    found = await sandbox.exec(
        ["python3", "-c", "import pytest"], env=given.env, cwd="/", user=given.spec.user, timeout_s=60
    )
    return found.exit_code == 0


async def _write_scripts(sandbox: Sandbox, cwd: str, scripts: Sequence[TestScript]) -> None:
    """Put scripts into the working folder, over whatever the agent left in their place."""
    known = {each.path: each.content for each in scripts if each.content is not None}
    if not known:
        return
    with tempfile.TemporaryDirectory(prefix="proctor-tests-") as scratch:
        for path, content in known.items():
            place = Path(scratch, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content)
        await sandbox.upload(Path(scratch), cwd)


_PYTEST = "pytest"
_RUN_PYTEST = 'exec python3 -m pytest -v --tb=short -p no:cacheprovider "$1"'


def _command(script: TestScript) -> list[str]:
    """What runs a script of the working folder: pytest for Python with tests, else by its name."""
    content, suffix = script.content, Path(script.path).suffix
    if suffix == ".py" and (content is None or _HAS_TESTS.search(content)):
        return [_PYTEST, script.path]
    executable = content is not None and content.startswith("#!")
    return ["" if executable else _INTERPRETERS.get(suffix.lower(), ""), f"./{script.path}"]


_HAS_TESTS = re.compile(r"^\s*(async\s+)?def\s+test|^\s*class\s+Test|\bimport\s+pytest\b", re.MULTILINE)
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


def too_low(minimum: Mapping[str, float], verdict: Verdict) -> bool:
    """Whether a reward, or a part of it that has a minimum, is below it. A part that is missing is."""
    known = {"reward": verdict.reward, **verdict.parts}
    values = ((known.get(part), least) for part, least in minimum.items())
    return any(value is None or value < least for value, least in values)


def combine(strategy: str, judged: Sequence[Verdict], lost: int = 0) -> Verdict:
    """The reward of a task from the steps that were judged: their mean, part by part, or the last one's.

    Steps after one below its minimum do not count. `lost` ones do, with 0: they should have been tried.
    """
    nothing = Verdict(outcome=from_reward(0.0), reward=0.0)
    counted = [*judged, *[nothing] * lost]
    if strategy == "final":
        return counted[-1]
    names = {name: None for verdict in counted for name in verdict.parts}
    parts = {name: sum(each.parts.get(name, 0.0) for each in counted) / len(counted) for name in names}
    reward = sum(each.reward or 0.0 for each in counted) / len(counted)
    return Verdict(outcome=from_reward(reward), reward=reward, parts=parts)


async def judge_in(
    attempt: TaskAttempt,
    sandbox: Sandbox,
    cwd: str,
    step: Step | None,
    *,
    fresh: Sequence[str] = (),
    part: str = "",
) -> Verdict:
    """Run an attempt's tests in a sandbox and read the verdict; files go to a `part` of the verifier's."""
    spec, tests = attempt.verifier_of(step), attempt.tests_of(step)
    env = {**attempt.env, **filled(attempt.setting, attempt.plan, spec.env, "verifier")}
    given = VerifierInputs(spec=spec, env=env, cwd=cwd, logs=attempt.logs, fresh=fresh)
    if attempt.task.kind == "prepared" and attempt.task.rubrics:
        verdict, attempt.rubrics = await verify_rubrics(sandbox, given, tests[-1], attempt.task.rubrics)
        return verdict
    keep = attempt.folder / "verifier" / (step.name if step else "") / part
    return await verify(sandbox, given, () if spec.bundled else tests, keep)


async def open_separate(attempt: TaskAttempt, step: Step | None, policy: Policy) -> tuple[Sandbox, str]:
    """A verifier's own fresh sandbox, and the folder to run the tests in.

    It gets the files that it asked for, and nothing else of the agent's.
    """
    setting, task = attempt.setting, attempt.task
    spec, env = attempt.verifier_of(step), attempt.env
    if spec.environment:
        env = filled(setting, attempt.plan, spec.environment.env, "verifier.environment")
    await end_processes(attempt.sandbox)
    own = replace(task, environment=spec.environment) if spec.environment else task
    root = await setting.make_root(task, spec.environment)
    suffix = attempt.sandbox_name("verifier", step)
    request = sandbox_request(setting, own, attempt.trial, root, env, suffix=suffix, policy=policy)
    sandbox = setting.backend.sandbox(request)
    cwd = workdir_of(own, root)
    try:
        try:
            await sandbox.start()
            await sandbox.exec(["/bin/mkdir", "-p", cwd, PUBLISHED], cwd="/", user="root")
            if own.environment.loose_files and not spec.bundled:
                await sandbox.upload(own.environment.loose_files, cwd)
        except SandboxError as error:  # nothing of the agent's is in it yet
            raise HostError(str(error)) from error
        with tempfile.TemporaryDirectory(prefix="proctor-") as scratch:
            taken = await copy_out(attempt.sandbox, wanted(task, step), attempt.workdir, Path(scratch))
            await copy_in(sandbox, taken, attempt.workdir)
    except BaseException:
        await sandbox.stop()
        raise
    return sandbox, cwd
