"""The performance of one attempt: correct programs are measured, and the ratio becomes the reward.

Reference and program each begin with a saved state on the same root: the author's files over the untouched
working folder, and what the agent left, less its changes of the system.
"""

from __future__ import annotations

import json
import random
import secrets
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, cast

from proctor.analysis.performance import ERROR, Rating, Rules, Settled, is_look, rate
from proctor.errors import HostError, SandboxError
from proctor.model.lockstep import Schedule
from proctor.model.outcome import Outcome, from_reward
from proctor.model.record import Failure, Round
from proctor.model.task import PerformanceSpec, Task
from proctor.sandbox.base import Root, Sandbox, can, end_processes
from proctor.trial.collect import MAX_STATE_BYTES, KeepsState
from proctor.trial.lockstep.measure import turns
from proctor.trial.performance.executions import ProgramFailedError
from proctor.trial.performance.rounds import Bench, ReferenceFailedError, measure_round
from proctor.trial.task.sandboxes import Policy, for_verifier
from proctor.trial.task.second_look import judge as second_look
from proctor.trial.task.workspace import lay_out
from proctor.trial.verify import LOG, Verdict

if TYPE_CHECKING:
    from proctor.trial.task_trial import TaskAttempt

PHASE = "measure"
FILE = "performance.json"
_SCHEMA_VERSION = 1
_OFFLINE = Policy("none")


def obstacle(sandbox: Sandbox, task: Task) -> str:
    """Why a task's performance cannot be measured in this kind of sandbox; empty when it can."""
    if not task.verifier.performance or can(sandbox, KeepsState):
        return ""
    kind = sandbox.info().backend
    return (
        f"a {kind} sandbox cannot save what is in it, and the task measures performance; use another sandbox "
        "(--sandbox)"
    )


async def measure(attempt: TaskAttempt, spec: PerformanceSpec, verdict: Verdict) -> Verdict:
    """The verdict with the reward of the program's performance. What is not wholly right earns nothing."""
    parts = {**verdict.parts, "correctness": verdict.reward or 0.0}
    if (verdict.reward or 0.0) < 1:
        attempt.performance = _summary(spec, "not measured", reason="the tests did not pass")
        return _earned(replace(verdict, parts=parts), 0.0, verdict.failure)
    attempt.logs.write(LOG, b"== performance against the reference\n")
    rounds: list[Round] = []
    async with attempt.setting.measuring:
        with attempt.phases.phase(PHASE):
            try:
                rating = await _rounds(attempt, spec, rounds)
            except ProgramFailedError as error:
                return _failed(attempt, spec, replace(verdict, parts=parts), rounds, str(error))
            except ReferenceFailedError as error:
                why = attempt.redactor.text(str(error))
                _keep(attempt, spec, rounds, _summary(spec, "not measured", reason=why))
                return _unscored(attempt, Outcome.VERIFIER_ERROR, "ReferenceFailed", why)
    return _rated(attempt, spec, replace(verdict, parts=parts), rounds, rating)


async def _rounds(attempt: TaskAttempt, spec: PerformanceSpec, rounds: list[Round]) -> Rating:
    """A warm-up, then rounds until the reward is settled, or there are no more."""
    bench = await _bench(attempt, spec)
    rules = Rules(
        rounds=spec.rounds,
        target=spec.target,
        precision=spec.precision,
        higher=spec.direction == "higher",
    )
    await measure_round(bench, 0)
    while True:
        rounds.append(await measure_round(bench, len(rounds) + 1))
        if not is_look(len(rounds), rules):
            continue
        rating = rate([each.reference for each in rounds], [each.program for each in rounds], rules)
        if rating.settled is Settled.YES or len(rounds) >= spec.rounds:
            return rating


async def _bench(attempt: TaskAttempt, spec: PerformanceSpec) -> Bench:
    root = attempt.root
    assert root is not None

    def make(suffix: str, state: Path | None) -> Sandbox:
        name = attempt.sandbox_name(suffix)
        request = attempt.request(root, suffix=name, state=state, policy=_OFFLINE)
        return attempt.setting.backend.sandbox(request)

    found = attempt.changes
    if found is None:
        policy = for_verifier(attempt.task, attempt.setting.sandbox)
        found = attempt.changes = await second_look.look(attempt, None, policy)
    await end_processes(attempt.sandbox)
    program = await second_look.clean_state(attempt, found)
    if program is None:
        raise ProgramFailedError("more changed in its sandbox than can be saved and started again")
    rng = random.Random(secrets.randbits(128))  # noqa: S311 - the seed of it is not to be guessed
    two = Schedule(loops=1, warmup=0, kept=2)
    order = [side for _ in range(spec.rounds // 2 + 1) for side in turns(two, 2, rng)]
    return Bench(
        spec=spec,
        make=make,
        reference=await _reference_state(attempt, spec, root, make("reference", None)),
        program=program,
        tests=next((each for each in attempt.tests_of(None) if each.is_dir()), None),
        cwd=attempt.workdir,
        user=attempt.task.agent.user,
        env=attempt.env,
        rng=rng,
        first=[not each for each in order[::2]],
        say=lambda text: attempt.logs.write(LOG, f"{text}\n".encode()),
    )


async def _reference_state(attempt: TaskAttempt, spec: PerformanceSpec, root: Root, sandbox: Sandbox) -> Path:
    """The author's program in the working folder as it was before the agent, saved."""
    place = second_look.scratch(attempt, "reference.tar")
    try:
        await sandbox.start()
        await lay_out(sandbox, attempt.plan.workspace, attempt.task, root, attempt.workdir)
        await sandbox.upload(spec.reference, attempt.workdir)
        await end_processes(sandbox)
        if not await cast("KeepsState", sandbox).save_state(place, max_bytes=MAX_STATE_BYTES):
            raise ReferenceFailedError("the reference is too large to be saved")
    except SandboxError as error:  # nothing of the agent's is in it
        raise HostError(str(error)) from error
    finally:
        await sandbox.stop()
    return place


def _rated(
    attempt: TaskAttempt, spec: PerformanceSpec, verdict: Verdict, rounds: list[Round], rating: Rating
) -> Verdict:
    found = _summary(spec, rating.settled.value, rounds, rating)
    if rating.reward is None:
        said = (
            f"after {rating.rounds} rounds the reward is between {rating.reward_low:.2f} and "
            f"{rating.reward_high:.2f}, because the reference's own {spec.metric} varied too; when the "
            "machine is quieter, 'proctor eval' measures again what the agent left"
        )
        _keep(attempt, spec, rounds, {**found, "reason": said})
        return _unscored(attempt, Outcome.STARVED, Failure.lasting_type("Inconclusive"), said)
    if rating.settled is Settled.ERRATIC:
        said = (
            f"performance: the program's {spec.metric} varied far more than the reference's, so the lower "
            f"end of the interval counts: {rating.low:.2f} times as good as the reference"
        )
        attempt.notes.append(said)
        found["reason"] = said
    _keep(attempt, spec, rounds, found)
    return _earned(verdict, rating.reward, None)


def _failed(
    attempt: TaskAttempt, spec: PerformanceSpec, verdict: Verdict, rounds: list[Round], why: str
) -> Verdict:
    said = attempt.redactor.text(f"the program failed while it was measured: {why}")
    _keep(attempt, spec, rounds, _summary(spec, "failed", reason=said))
    return _earned(verdict, 0.0, Failure(phase=PHASE, type="ProgramFailed", message=said))


def _unscored(attempt: TaskAttempt, outcome: Outcome, kind: str, message: str) -> Verdict:
    """Nothing can be said of the program. How the agent ended, a time limit or so, makes no number of it."""
    attempt.outcome = None
    return Verdict(outcome=outcome, failure=Failure(phase=PHASE, type=kind, message=message))


def _earned(verdict: Verdict, reward: float, failure: Failure | None) -> Verdict:
    parts = {**verdict.parts, "performance": reward, "reward": reward}
    return Verdict(outcome=from_reward(reward), reward=reward, parts=parts, failure=failure)


def _summary(
    spec: PerformanceSpec,
    verdict: str,
    rounds: list[Round] | None = None,
    rating: Rating | None = None,
    reason: str = "",
) -> dict[str, Any]:
    """What a record says of it; the rounds themselves are in a file."""
    found: dict[str, Any] = {
        "verdict": verdict,
        "metric": spec.metric,
        "direction": spec.direction,
        "target": spec.target,
        **({"reason": reason} if reason else {}),
    }
    if rating is None or not rounds:
        return found
    return {
        **found,
        "rounds": rating.rounds,
        "ratio": rating.ratio,
        "interval": [rating.low, rating.high],
        "level": 1 - ERROR,
        "reward": rating.reward,
        "reward_interval": [rating.reward_low, rating.reward_high],
        "reference": median(each.reference for each in rounds),
        "program": median(each.program for each in rounds),
    }


def _keep(attempt: TaskAttempt, spec: PerformanceSpec, rounds: list[Round], found: dict[str, Any]) -> None:
    attempt.performance = found
    document = {
        "schema_version": _SCHEMA_VERSION,
        **found,
        "command": spec.command,
        "values": [each.to_mapping() for each in rounds],
    }
    data = (json.dumps(document, indent=1) + "\n").encode()
    attempt.artifacts.append(attempt.setting.collector.keep(attempt.folder, FILE, data))
