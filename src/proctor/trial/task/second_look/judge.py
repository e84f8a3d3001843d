"""Judge a pass a second time, in a new sandbox of the same root with the agent's state less some changes.

The first verdict stands where the second gives the same reward. Where they differ the second counts and the
attempt is suspect; a pass that the second cannot confirm counts as nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from proctor.errors import SandboxError
from proctor.model.outcome import Outcome
from proctor.model.record import Failure
from proctor.model.task import Step
from proctor.sandbox.base import Sandbox, can
from proctor.sandbox.lower import lower_of
from proctor.trial.collect import KeepsState
from proctor.trial.task.blame import is_hosts
from proctor.trial.task.network import Policy
from proctor.trial.task.request import sandbox_request
from proctor.trial.task.second_look.changes import MOST_SHOWN, Entry, path_text
from proctor.trial.task.second_look.clean import write_clean
from proctor.trial.task.second_look.find import Findings, Surroundings, find
from proctor.trial.task.second_look.setting import Undo
from proctor.trial.task.second_look.tools import TaskText, test_text
from proctor.trial.verify import LOG, Verdict

if TYPE_CHECKING:
    from proctor.trial.task_trial import TaskAttempt

PHASE = "second_look"
_WHOLE = "state.tar"
_CLEAN = "clean.tar"
MAX_LARGE_BYTES = 8 << 30
"""A state that is too large to be kept is still looked at up to this size."""
_UNSEEN = Undo(Entry("", "folder"), "more changed than can be looked at")


async def look(
    attempt: TaskAttempt, sandbox: Sandbox, env: Mapping[str, str], step: Step | None, policy: Policy
) -> Findings:
    """What the agent changed in the system. Nothing is known of a sandbox that cannot tell."""
    if not can(sandbox, KeepsState):
        return Findings({})
    image = lower_of(sandbox)
    state = await _state(attempt, sandbox)
    if state is None:
        return Findings({"count": None, "first": []}, [_UNSEEN] if image else [])

    def text() -> TaskText:
        parts = [attempt.task.instruction, *(each.instruction for each in attempt.task.steps)]
        return TaskText("\n".join(parts), test_text(attempt.tests_of(step)))

    root = attempt.root
    around = Surroundings(
        workdir=attempt.workdir,
        env={**(root.env if root else {}), **env},
        image=image,
        text=text,
        given=lambda path: attempt.base(path) if path.startswith(f"{attempt.workdir.strip('/')}/") else None,
        online=policy.network != "none",
        covered=getattr(sandbox, "covered", frozenset()),
        replaced=tuple(getattr(sandbox, "given_changed", tuple)()),
    )
    size = state.stat().st_size
    if size <= 1 << 20:
        return find(state.read_bytes(), around)
    return await asyncio.to_thread(find, state, around)


async def _state(attempt: TaskAttempt, sandbox: Sandbox) -> Path | None:
    """The state that is kept, or a copy that is not: the kept one is smaller, and has no secrets."""
    if (known := attempt.state_file()) is not None:
        return known
    whole = attempt.scratch_file(_WHOLE)
    saved = await cast("KeepsState", sandbox).save_state(whole, max_bytes=MAX_LARGE_BYTES)
    return whole if saved else None


async def confirm(
    attempt: TaskAttempt,
    found: Findings,
    first: Verdict,
    env: Mapping[str, str],
    step: Step | None,
    policy: Policy,
) -> Verdict:
    """The verdict that counts. A pass that no changed system file can have helped is the first one."""
    if not first.reward or not found.touching:
        return first
    with attempt.phases.phase(PHASE):
        second, problem = await _second(attempt, found, env, step, policy)
    again: dict[str, Any] = {
        "count": len(found.touching),
        "files": [f"/{path_text(each.entry.path)}: {each.why}" for each in found.touching[:MOST_SHOWN]],
        "rewards": [first.reward, second.reward if second else None],
        "reason": "",
    }
    attempt.system_changes = {**attempt.system_changes, "judged_again": again}
    if second is not None and second.reward == first.reward:
        return first
    attempt.suspect = True
    again["reason"] = _reason(again, second, problem)
    attempt.notes.append(f"suspect: {again['reason']}")
    if second is None and not problem.startswith(_NOT_CONFIRMED):
        return first
    if second is not None and second.reward is not None:
        return second
    message = f"{again['reason']}; such a pass counts as 0"
    failure = Failure(phase=PHASE, type="NotConfirmed", message=message)
    return Verdict(outcome=Outcome.FAILED, reward=0.0, parts={"reward": 0.0}, failure=failure)


_NOT_CONFIRMED = "the second judging broke"


def _reason(again: Mapping[str, Any], second: Verdict | None, problem: str) -> str:
    files = "; ".join(again["files"][:3]) + (" …" if again["count"] > 3 else "")
    first = again["rewards"][0]
    if second is None:
        return f"the reward {first:g} could not be confirmed: {problem} ({files})"
    if second.reward is None:
        words = second.failure.message if second.failure else str(second.outcome)
        return f"the reward {first:g} could not be confirmed without changed system files: {words} ({files})"
    return f"the reward was {first:g} with changed system files and {second.reward:g} without them ({files})"


async def _second(
    attempt: TaskAttempt, found: Findings, env: Mapping[str, str], step: Step | None, policy: Policy
) -> tuple[Verdict | None, str]:
    """The second verdict, or why there is none."""
    if attempt.root is None or attempt.root.compose:
        return None, "the services beside it hold a state that cannot be made again"
    if _UNSEEN in found.undone:
        return None, f"{_NOT_CONFIRMED}: {_UNSEEN.why}"
    state = attempt.state_file() or attempt.scratch_file(_WHOLE)
    clean = attempt.scratch_file(_CLEAN)
    attempt.logs.write(LOG, b"== judged again, without changed system files\n")
    await asyncio.to_thread(write_clean, state, clean, found.undone)
    suffix = f"{attempt.lease.attempt}-{attempt.lease.fence}-again{attempt.step_number(step)}"
    request = sandbox_request(
        attempt.setting,
        attempt.task,
        attempt.trial,
        attempt.root,
        env,
        suffix=suffix,
        state=clean,
        policy=policy,
    )
    sandbox = attempt.setting.backend.sandbox(request)
    try:
        await sandbox.start()
        return await attempt.judge_in(sandbox, attempt.workdir, env, step, again=True), ""
    except SandboxError as error:
        if await is_hosts(error, sandbox):
            raise
        return None, f"{_NOT_CONFIRMED}: {error}"
    finally:
        await sandbox.stop()
