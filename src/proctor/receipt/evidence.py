"""Numbers of one attempt against what they were made from: iterations, reward files, rubrics, trajectory."""

from __future__ import annotations

import io
import json
import math
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from proctor.errors import UsageError
from proctor.model.outcome import ENVIRONMENT_BROKEN, Outcome, from_reward
from proctor.model.record import Artifact, AttemptRecord, AttemptRow, judge_of, rubrics_of, weighted
from proctor.quantity import number
from proctor.receipt.differences import Difference, Findings, said, same
from proctor.receipt.document import File
from proctor.runfolder.result import artifact_paths
from proctor.runfolder.series import NAME as SERIES
from proctor.trial.point.calibrate import aggregate
from proctor.trial.task.reward import Reward, RewardInvalid, parse_reward

Read = Callable[[str], bytes | None]
"""A path in the run folder → its bytes; None when it was left out or cannot be read."""

_BY_VERIFIER = {Outcome.PASSED, Outcome.FAILED, Outcome.PARTIAL}
_BY_AGENT = {Outcome.AGENT_TIMEOUT, Outcome.AGENT_ERROR, Outcome.BUDGET_EXHAUSTED}
_MOST_STEPS = 100
CONTROL = "control.json"
"""The artifact that shows what the tests did in an untouched sandbox."""


class Evidence:
    """Checks attempts one by one; `read` returns the artifacts that are in the receipt."""

    def __init__(self, read: Read, found: Findings) -> None:
        self._read = read
        self._found = found

    def check(self, row: AttemptRow) -> None:
        """Everything that can be calculated again for one attempt."""
        record = row.record
        self._outcome(row)
        if row.trial.kind == "experiment":
            self._metrics(row)
            return
        by_name = {
            artifact.name: path
            for path, artifact in zip(artifact_paths(row.trial, record), record.artifacts, strict=True)
        }
        judge = judge_of(record)
        if judge:
            self._judge(row, by_name)
        if judge.get("decides"):
            pass  # the tests have not given the reward
        elif any(each.get("status") == "tested" for each in rubrics_of(record)):
            self._rubrics(row, by_name)
        elif record.metrics.get("steps"):
            self._steps(row, by_name)
        else:
            self._reward(row, by_name)
        self._usage(row, by_name)

    def _outcome(self, row: AttemptRow) -> None:
        """An outcome, its reward and its failure say one thing."""
        record = row.record
        if not record.outcome.scored and record.reward is not None:
            self._wrong(row, "reward", record.reward, None, f"'{record.outcome}' is not scored, so it has")
        if record.outcome is Outcome.PASSED and record.failure is not None:
            self._wrong(
                row,
                "failure",
                f"{record.failure.type}: {record.failure.message}",
                None,
                "one that passed has",
            )
        broken = any("error" in each for each in record.iterations)
        if row.trial.kind == "experiment" and record.outcome is Outcome.PASSED and broken:
            self._wrong(row, "outcome", "passed", "failed", "an iteration has an error, which makes it")
        if row.trial.kind == "task" and record.outcome in _BY_VERIFIER and record.reward is not None:
            meant = from_reward(record.reward)
            self._value(
                row, "outcome", record.outcome.value, meant.value, f"a reward of {record.reward:g} means"
            )

    def _metrics(self, row: AttemptRow) -> None:
        """Every aggregate from the iterations. Instruments with a pass of their own kept no iterations."""
        record = row.record
        expected = aggregate(record.iterations)
        apart = _own_passes(record)
        for name, stats in record.metrics.items():
            if name in expected:
                wanted: Mapping[str, Any] = expected[name]
                for each in {**wanted, **(stats if isinstance(stats, dict) else {})}:
                    there = stats.get(each) if isinstance(stats, dict) else None
                    self._value(row, f"metrics.{name}.{each}", there, wanted.get(each), "the iterations give")
            elif name.partition(".")[0] in apart:
                self._found.note(
                    "aggregates of instruments that ran in a pass of their own have no raw values"
                )
            else:
                self._wrong(row, f"metrics.{name}", stats, None, "no iteration has it:")
        for name in expected.keys() - record.metrics.keys():
            self._wrong(row, f"metrics.{name}", None, expected[name]["mean"], "the iterations give a mean of")

    def _reward(self, row: AttemptRow, by_name: Mapping[str, str]) -> None:
        record = row.record
        if record.failure and record.failure.type == ENVIRONMENT_BROKEN:
            self._broken(row, by_name)
            return
        found = self._said(by_name, "verifier")
        if found is None:
            return
        source, reward = found
        if isinstance(reward, Reward):
            says = f"the verifier's own {source} says"
            if record.outcome in _BY_VERIFIER | _BY_AGENT:
                self._value(row, "reward", record.reward, reward.value, says)
            if record.outcome in _BY_VERIFIER:
                meant = from_reward(reward.value).value
                self._value(row, "outcome", record.outcome.value, meant, f"{says} {reward.value:g}, so")
            if record.outcome.scored:
                self._value(row, "metrics.rewards", record.metrics.get("rewards"), dict(reward.parts), says)
        elif record.outcome in _BY_VERIFIER:
            self._wrong(
                row, "outcome", record.outcome.value, Outcome.REWARD_INVALID.value, f"{reward}; that is"
            )
        elif record.outcome in _BY_AGENT:
            self._value(row, "reward", record.reward, 0.0, f"{reward}; that counts as")
        if not source and record.outcome in _BY_VERIFIER:
            self._wrong(row, "outcome", record.outcome.value, Outcome.VERIFIER_ERROR.value, "no reward means")

    def _broken(self, row: AttemptRow, by_name: Mapping[str, str]) -> None:
        """An environment that the agent broke is worth 0, and a control shows that the tests work."""
        self._value(row, "reward", row.record.reward, 0.0, "an environment that the agent broke is worth")
        path = by_name.get(CONTROL)
        data = self._read(path) if path else None
        control = _mapping(_json(data)) if data is not None else {}
        if control.get("works") is not True:
            self._wrong(row, "failure", ENVIRONMENT_BROKEN, None, "without a control that works it would be")

    def _said(self, by_name: Mapping[str, str], folder: str) -> tuple[str, Reward | str] | None:
        """The reward in a reward file; None when the file is missing."""
        for name in ("reward.json", "reward.txt"):
            path = by_name.get(f"{folder}/{name}")
            if path is None:
                continue
            data = self._read(path)
            if data is None:
                self._found.note(
                    "some reward files were left out or cannot be read; their rewards are not verified"
                )
                return None
            try:
                return name, parse_reward(name, data)
            except RewardInvalid as error:
                return name, str(error)
        return "", "the verifier left no reward file"

    def _steps(self, row: AttemptRow, by_name: Mapping[str, str]) -> None:
        """Each step's own file; the whole is their mean over all steps, or the last of them."""
        record = row.record
        steps = {name: number(value) for name, value in _mapping(record.metrics["steps"]).items()}
        for name, recorded in steps.items():
            found = self._said(by_name, f"verifier/{name}")
            if found and isinstance(found[1], Reward):
                says = f"the verifier's own {name}/{found[0]} says"
                self._value(row, f"metrics.steps.{name}", recorded, found[1].value, says)
        known = [value for value in steps.values() if value is not None]
        if record.outcome not in _BY_VERIFIER or len(known) < len(steps) or record.reward is None:
            return
        possible = {0.0, known[-1], *(math.fsum(known) / count for count in range(len(known), _MOST_STEPS))}
        if not any(same(record.reward, value) for value in possible):
            mean = math.fsum(known) / len(known)
            self._wrong(row, "reward", record.reward, mean, "its steps have a mean of")

    def _rubrics(self, row: AttemptRow, by_name: Mapping[str, str]) -> None:
        record = row.record
        rubrics = rubrics_of(record)
        path = by_name.get("rubrics.json")
        data = self._read(path) if path else None
        if data is not None:
            self._value(row, "metrics.rubrics", rubrics, _json(data), "rubrics.json says")
        if record.outcome in _BY_VERIFIER | _BY_AGENT:
            score = weighted([each for each in rubrics if each.get("status") == "tested"], "unit_score")
            if score is None and record.outcome in _BY_AGENT:
                score = 0.0
            self._value(row, "reward", record.reward, score, "the rubrics' weighted mean is")

    def _judge(self, row: AttemptRow, by_name: Mapping[str, str]) -> None:
        """The judge's scores from the votes that are in its file; the reward too where it decides."""
        record, rubrics = row.record, rubrics_of(row.record)
        judge = judge_of(record)
        path = by_name.get("judge.json")
        data = self._read(path) if path else None
        given = _mapping(_json(data)).get("votes") if data is not None else None
        votes: list[Any] = given if isinstance(given, list) and judge.get("score") is not None else []
        for each in rubrics if votes else ():
            name = str(each.get("id"))
            found = [number(_mapping(_mapping(vote).get("scores")).get(name)) for vote in votes]
            known = [score for score in found if score is not None]
            median = statistics.median(known) if known else None
            field = f"metrics.rubrics.{name}.judge_score"
            self._value(row, field, each.get("judge_score"), median, "the judge's votes give")
        score = weighted(rubrics, "judge_score")
        self._value(row, "metrics.judge.score", judge.get("score"), score, "the rubrics' weighted mean is")
        if judge.get("decides") and record.outcome in _BY_VERIFIER | _BY_AGENT:
            self._value(row, "reward", record.reward, score, "the judge, who decides, gives")

    def _usage(self, row: AttemptRow, by_name: Mapping[str, str]) -> None:
        """Tokens, money and tool calls from the trajectory's steps."""
        usage = row.record.usage
        if "harbor/result.json" in by_name:
            self._found.note("token counts of imported trials are those that their tool stated")
            return
        path = by_name.get("trajectory.json")
        data = self._read(path) if path and usage else None
        document = _json(data) if data is not None else None
        if not isinstance(document, dict) or not isinstance(document.get("steps"), list):
            if usage:
                self._found.note(
                    "some trajectories were left out or cannot be read; their token counts are not verified"
                )
            return
        steps = [step for step in document["steps"] if isinstance(step, dict)]
        if "models" in usage:
            self._tapes(row, by_name)
        for name in () if "models" in usage else ("prompt_tokens", "completion_tokens", "cost_usd"):
            total = math.fsum(
                amount for step in steps if (amount := number(_mapping(step.get("metrics")).get(name)))
            )
            self._value(row, f"usage.{name}", usage.get(name), total, "the trajectory's steps give")
        calls = sum(len(made) for step in steps if isinstance(made := step.get("tool_calls"), list))
        self._value(row, "usage.tool_calls", usage.get("tool_calls"), calls, "the trajectory's steps give")

    def _tapes(self, row: AttemptRow, by_name: Mapping[str, str]) -> None:
        """Tokens that the gateway counted, from the answers on the attempt's tapes."""
        from proctor.gateway.tape import Tape

        names = [name for name in by_name if name.startswith("tape")]
        read = [data for name in names if (data := self._read(by_name[name])) is not None]
        if not read or len(read) < len(names):
            self._found.note("some tapes were left out or cannot be read; token counts are not verified")
            return
        try:
            tapes = [Tape.read(io.BytesIO(data)) for data in read]
        except UsageError as error:
            self._found.note(f"a tape cannot be read: {error}")
            return
        if any(tape.left_out for tape in tapes):
            self._found.note("a tape was full before its end; token counts are not verified")
            return
        used = [entry.usage for tape in tapes for entry in tape.entries if entry.usage]
        for name in ("prompt_tokens", "completion_tokens"):
            total = sum(getattr(each, name) for each in used)
            self._value(row, f"usage.{name}", row.record.usage.get(name), total, "the tape gives")

    def _value(self, row: AttemptRow, name: str, recorded: Any, expected: Any, source: str) -> None:
        self._found.value(
            SERIES, name, recorded, expected, source, trial=row.trial, attempt=row.record.number
        )

    def _wrong(self, row: AttemptRow, name: str, recorded: Any, expected: Any, source: str) -> None:
        """As `_value`, for what is known to differ."""
        what = f"{name}: recorded {said(recorded)}, {source} {said(expected)}"
        self._found.add(
            Difference(
                file=SERIES,
                what=what,
                trial=row.trial,
                attempt=row.record.number,
                field=name,
                recorded=recorded,
                expected=expected,
            )
        )


def check_artifact(
    row: AttemptRow, artifact: Artifact, path: str, listed: File | None, found: Findings
) -> None:
    """The record's digest of an artifact and the receipt's are one."""
    trial, attempt = row.trial, row.record.number
    if listed is None:
        what = "the record has this artifact, but the receipt does not"
        found.add(Difference(file=path, what=what, trial=trial, attempt=attempt))
        return
    for name, recorded, expected in (
        ("digest", artifact.digest, listed.sha256),
        ("size_bytes", artifact.size_bytes, listed.size_bytes),
    ):
        field = f"artifacts.{artifact.name}.{name}"
        found.value(SERIES, field, recorded, expected, "the receipt has", trial=trial, attempt=attempt)


def _own_passes(record: AttemptRecord) -> set[str]:
    """Instruments that measured in a pass of their own, by the record's word."""
    known = record.ledger.get("instruments")
    entries = known.items() if isinstance(known, dict) else ()
    return {
        str(name) for name, each in entries if isinstance(each, dict) and each.get("rides_along") is False
    }


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
