"""Rules that the plan and the attempts of every run must satisfy.

Keys follow from the plan; every attempt belongs to it; of each trial one attempt counts, the last; and only
an attempt that somebody else than the agent spoiled is ever set aside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import asdict

from proctor.model.canonical import digest
from proctor.model.outcome import Blame, Outcome
from proctor.model.plan import PlannedTrial, trial_key
from proctor.model.record import AttemptRow
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.receipt.differences import Difference, Findings
from proctor.runfolder.read import RunData, TrialResult
from proctor.runfolder.series import NAME as SERIES

MANIFEST, SUMMARY = "manifest.json", "summary.json"
_CLOCK_S = 60.0
"""Largest difference between two clocks of one run before times are reported as impossible."""


def check_plan(info: RunInfo, planned: Sequence[PlannedTrial], found: Findings) -> None:
    """Every key follows from what the trial is, and the plan's digest from the keys."""
    seen: set[str] = set()
    for at, trial in enumerate(planned):
        key = trial_key(
            subject_digest=trial.subject_digest,
            agent=trial.agent,
            agent_version=trial.agent_version,
            model=trial.model,
            params=trial.params,
            overrides=trial.overrides,
            seed=trial.seed,
            rollout=trial.rollout,
        )
        found.value(MANIFEST, "key", trial.key, key, "the plan gives", trial=trial)
        found.value(MANIFEST, "index", trial.index, at, "its place in the plan is", trial=trial)
        if trial.key in seen:
            found.add(Difference(file=MANIFEST, what="is planned twice", trial=trial, field="key"))
        seen.add(trial.key)
    whole = digest([trial.key for trial in planned])
    found.value(MANIFEST, "run.plan_digest", info.plan_digest, whole, "the keys give")
    found.value(MANIFEST, "run.total", info.total, len(planned), "planned trials are")


class Attempts:
    """Looks at the rows one by one, in the order of the file."""

    def __init__(self, planned: Sequence[PlannedTrial], info: RunInfo, found: Findings) -> None:
        self._plan = {trial.key: trial for trial in planned}
        self._info = info
        self._found = found
        self._last: AttemptRow | None = None
        self.rows = 0

    def look(self, row: AttemptRow, trial: PlannedTrial) -> None:
        """One row; `trial` is what the row itself says it belongs to."""
        self.rows += 1
        record, planned = row.record, self._plan.get(row.record.key)
        if planned is None:
            self._wrong(row, "belongs to a trial that the plan does not have", "key")
        elif planned != trial:
            changed = [name for name, value in asdict(planned).items() if getattr(trial, name) != value]
            self._wrong(row, f"{', '.join(changed)}: not as planned for this key", changed[0])
        self._times(row)
        last = self._last
        again = last is not None and last.record.key == record.key
        if last is not None and not again and row.trial.index <= last.trial.index:
            self._wrong(row, "its row is out of order: rows must be in the order of the plan", "index")
        if record.number != (last.record.number + 1 if again and last else 1):
            self._wrong(row, f"is numbered {record.number}: attempts count up from 1", "number")
        if again and last:
            self._follows(row, last)
        if not row.counts and not (record.outcome.retryable or record.outcome.blame is Blame.PERSON):
            self._wrong(
                row,
                f"ended '{record.outcome}', which counts, but is marked as not counted: only attempts "
                "that infrastructure, a "
                "provider or a person broke are retried",
                "counts",
            )
        self._last = row

    def _follows(self, row: AttemptRow, last: AttemptRow) -> None:
        if last.counts:
            self._wrong(
                row, ("follows an attempt that counts; an attempt that counts must be the last"), "counts"
            )
        if row.record.started_at < last.record.ended_at - _CLOCK_S:
            self._wrong(row, "started before the attempt before it had ended", "started_at")

    def _times(self, row: AttemptRow) -> None:
        record, info = row.record, self._info
        took_s = record.ended_at - record.started_at
        if took_s < 0:
            self._wrong(row, f"ended {-took_s:g} s before it started", "ended_at")
        phases_s = sum(
            value for name, value in record.phases_s.items() if name != "queue" and _is_number(value)
        )
        if phases_s > took_s * 1.05 + 1:
            self._wrong(
                row, f"took {took_s:g} s from start to end, but its phases took {phases_s:g} s", "phases_s"
            )
        if info.started_at is not None and record.started_at < info.started_at - _CLOCK_S:
            self._wrong(row, "started before its run did", "started_at")
        if info.finished_at is not None and record.ended_at > info.finished_at + _CLOCK_S:
            self._wrong(row, "ended after its run had", "ended_at")

    def _wrong(self, row: AttemptRow, what: str, name: str) -> None:
        self._found.add(
            Difference(file=SERIES, what=what, trial=row.trial, attempt=row.record.number, field=name)
        )


def check_end(data: RunData, found: Findings) -> None:
    """What the run says of its end against what its attempts say."""
    info = data.info
    ended = Counter(str(trial.outcome) for trial in data.finished)
    cancelled = ended.pop(Outcome.CANCELLED, 0)
    done = sum(ended.values())
    expected = dict(ended)
    if info.status is RunStatus.CANCELLED and info.total > done:
        expected[Outcome.CANCELLED.value] = info.total - done
    elif cancelled:
        expected[Outcome.CANCELLED.value] = cancelled
    stated = {name: count for name, count in info.counts.items() if count}
    found.value(SUMMARY, "run.counts", stated, expected, "the attempts that count give")
    if info.done != done + cancelled:  # a cancelled attempt counts, and its trial is not done
        found.value(SUMMARY, "run.done", info.done, done, "the attempts that count are")
    missing = [trial for trial in data.trials if trial.counted is None]
    if info.status is RunStatus.DONE:
        for trial in missing:
            _unanswered(trial, found)


def _unanswered(trial: TrialResult, found: Findings) -> None:
    found.add(
        Difference(
            file=SERIES,
            what="has no attempt that counts, but the run is marked as done",
            trial=trial.planned,
            field="counts",
        )
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
