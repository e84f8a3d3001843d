"""One trial of a Harbor job as one attempt: its outcome with blame, reward, times, usage and files."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from mimetypes import guess_type
from pathlib import Path
from typing import Any

from proctor.agents import atif
from proctor.disk import read_small
from proctor.model.canonical import digest
from proctor.model.outcome import Outcome, from_reward
from proctor.model.record import Artifact, AttemptRecord, Failure
from proctor.model.secret import looks_secret
from proctor.runfolder.files import regular_file
from proctor.runfolder.harbor.format import (
    OWN,
    TRAJECTORY,
    ExceptionInfo,
    StepResult,
    TrialResult,
    VerifierResult,
    artifact_name,
)
from proctor.runfolder.harbor.outcomes import outcome_of
from proctor.store.blobs import Blobs

_MAX_TRAJECTORY = 256 << 20
_BY_REWARD = {Outcome.PASSED, Outcome.PARTIAL, Outcome.FAILED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A trial's folder and what its `result.json` says."""

    folder: Path
    result: TrialResult
    task_digest: str

    @property
    def started_at(self) -> float:
        """When it began; 0 where it does not say."""
        return self.result.started_at.timestamp() if self.result.started_at else 0.0

    @property
    def model(self) -> str | None:
        """The model with its provider, as people write it."""
        asked = _mapping(self.result.config.get("agent")).get("model_name")
        if isinstance(asked, str) and asked:
            return asked
        info = self.result.agent_info.model_info
        if info is None:
            return None
        return f"{info.provider}/{info.name}" if info.provider else info.name

    @property
    def overrides(self) -> dict[str, Any]:
        """The agent's options, without values that may be secret; they tell agents apart."""
        options = _mapping(_mapping(self.result.config.get("agent")).get("kwargs"))
        return {"agent_options": _masked(options)} if options else {}

    @property
    def exported(self) -> Mapping[str, Any]:
        """What an export of Proctor's added to the trial."""
        metadata = self.result.agent_result.metadata if self.result.agent_result else None
        return _mapping(_mapping(metadata).get(OWN))


def record_of(found: Found, key: str, blobs: Blobs) -> AttemptRecord:
    """The attempt; its files are kept."""
    result = found.result
    rewards, reward = _reward(result.verifier_result)
    exception = _exception(result)
    outcome, notes = _outcome(found, exception, reward)
    steps = {
        each.step_name: _reward(each.verifier_result)[1] if each.verifier_result else None
        for each in result.step_results or ()
    }
    started_at = found.started_at
    ended_at = result.finished_at.timestamp() if result.finished_at else started_at
    return AttemptRecord(
        key=key,
        number=1,
        outcome=outcome,
        started_at=started_at,
        ended_at=max(started_at, ended_at),
        reward=(reward or 0.0) if outcome.scored else None,
        failure=_failure(exception, result) if exception else None,
        phases_s=_phases(result),
        metrics={"rewards": rewards, **({"steps": steps} if steps else {})},
        usage=_usage(found),
        artifacts=tuple(_files(found, blobs)),
        notes=notes,
        worker="harbor",
    )


def _exception(result: TrialResult) -> ExceptionInfo | None:
    """The trial's, or the last that ended one of its steps."""
    if result.exception_info:
        return result.exception_info
    ended = [each.exception_info for each in result.step_results or () if each.exception_info]
    return ended[-1] if ended else None


def _outcome(
    found: Found, exception: ExceptionInfo | None, reward: float | None
) -> tuple[Outcome, tuple[str, ...]]:
    if exception:
        stated = found.exported.get("outcome")
        if isinstance(stated, str) and stated in set(Outcome) - _BY_REWARD:
            return Outcome(stated), ()
        outcome, known = outcome_of(
            exception.exception_type, verifying=_began(found.result)[-1:] == ["verify"]
        )
        unknown = f"Harbor's {exception.exception_type} does not say whose fault it was: not in the score"
        return outcome, () if known else (unknown,)
    if reward is None:
        return Outcome.SKIPPED, ("Harbor has no reward: its verifier did not run",)
    return from_reward(reward), ()


def _reward(result: VerifierResult | None) -> tuple[dict[str, float], float | None]:
    """Every reward, and the one that counts: `reward`, else the mean, as in `reward.json`."""
    rewards = dict(result.rewards or {}) if result else {}
    if not rewards:
        return {}, None
    return rewards, rewards.get("reward", math.fsum(rewards.values()) / len(rewards))


def _failure(exception: ExceptionInfo, result: TrialResult) -> Failure:
    began = _began(result)
    return Failure(
        phase=began[-1] if began else "start",
        type=exception.exception_type,
        message=exception.exception_message,
        traceback=exception.exception_traceback,
    )


def _began(result: TrialResult) -> list[str]:
    """The phases that the trial came to, the last step's for a task with steps."""
    last: TrialResult | StepResult = result.step_results[-1] if result.step_results else result
    timings = {
        "start": result.environment_setup,
        "setup": result.agent_setup,
        "agent": last.agent_execution,
        "verify": last.verifier,
    }
    return [phase for phase, timing in timings.items() if timing is not None]


def _phases(result: TrialResult) -> dict[str, float]:
    """How long each took; of a task with steps all steps together."""
    timings = [("start", result.environment_setup), ("setup", result.agent_setup)]
    both: tuple[TrialResult | StepResult, ...] = (result, *(result.step_results or ()))
    for each in both:
        timings += [("agent", each.agent_execution), ("verify", each.verifier)]
    found: dict[str, float] = {}
    for phase, timing in timings:
        if timing is not None and (took_s := timing.seconds) is not None:
            found[phase] = found.get(phase, 0.0) + took_s
    return found


def _usage(found: Found) -> dict[str, Any]:
    """What Harbor counted; what it did not count, as the trajectory has it. Unknown is left out, never 0."""
    result = found.result
    used = [result.agent_result] if result.agent_result else []
    used = used or [each.agent_result for each in result.step_results or () if each.agent_result]
    recordings = list(_recordings(found.folder))
    usage: dict[str, Any] = {}
    for name, theirs in (
        ("prompt_tokens", "n_input_tokens"),
        ("completion_tokens", "n_output_tokens"),
        ("cached_tokens", "n_cache_tokens"),
        ("cost_usd", "cost_usd"),
    ):
        value = _sum(getattr(each, theirs) for each in used)
        value = _sum(each.total(name) for each in recordings) if value is None else value
        if value is not None:
            usage[name] = value if name == "cost_usd" else int(value)
    if recordings:
        usage["tool_calls"] = sum(each.tool_calls for each in recordings)
        usage["steps"] = sum(step.source == "agent" for each in recordings for step in each.done)
    return usage


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if known else None


def _recordings(folder: Path) -> Iterator[atif.Recording]:
    """The trajectories that can be read: one, or one for each step."""
    for name in _paths(folder):
        if name == TRAJECTORY or name.endswith(f"/{TRAJECTORY}"):
            with suppress(OSError, atif.NotATIF):
                yield atif.read(read_small(folder / name, _MAX_TRAJECTORY))


def _files(found: Found, blobs: Blobs) -> Iterator[Artifact]:
    """Every plain file of the trial."""
    steps = found.result.step_results
    last = steps[-1].step_name if steps else ""
    for path in _paths(found.folder):
        name = artifact_name(path, last)
        kind = guess_type(name)[0] or ("text/plain" if name.endswith(".log") else "application/octet-stream")
        yield blobs.put_file(regular_file(found.folder, path), name, kind)


def _paths(folder: Path) -> list[str]:
    """The plain files below a folder, by their paths; nothing is reached through a link."""
    found = []
    for base, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(base, name)
            if path.is_file() and not path.is_symlink():
                found.append(path.relative_to(folder).as_posix())
    return found


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _masked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with a digest in place of what may be secret: two agents stay two."""
    return {
        name: f"sha256:{digest(value)[:12]}"
        if looks_secret(name, value if isinstance(value, str) else None)
        else value
        for name, value in options.items()
    }
