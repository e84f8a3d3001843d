"""Trials as rows of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from proctor.model.outcome import Blame, Outcome, is_pass
from proctor.model.record import UNKNOWN_COST, AttemptRecord
from proctor.quantity import number
from proctor.server.listing import Page, listed
from proctor.server.problem import Problem
from proctor.server.reading.reading import Reading
from proctor.server.reading.run_rows import OVER
from proctor.store.store import Store
from proctor.store.views.trials import Shown

LONGEST_MESSAGE = 300


def trial_row(trial: Shown) -> dict[str, Any]:
    """One trial with the attempt that counts."""
    planned, record = trial.planned, trial.record
    return {
        "index": planned.index,
        "key": planned.key,
        "label": planned.label,
        "task": planned.subject,
        "agent": planned.agent,
        "model": planned.model,
        "params": planned.params,
        "rollout": planned.rollout,
        "state": trial.state,
        "outcome": record.outcome if record else None,
        "blame": record.outcome.blame if record else None,
        "reward": record.reward if record else None,
        "passed": is_pass(record.outcome, record.reward) if record else False,
        "took_s": record.took_s if record else None,
        "attempts": trial.attempts,
        **used(record),
        "suspect": record.suspect if record else False,
        "started_at": record.started_at if record else trial.started_at,
        "ended_at": record.ended_at if record else None,
        "worker": trial.worker,
        "message": message_of(record),
    }


def used(record: AttemptRecord | None) -> dict[str, Any]:
    """What an attempt used of models; nothing known is None, not 0."""
    usage = record.usage if record else {}
    amounts = [number(usage.get(f"{name}_tokens")) for name in ("prompt", "completion")]
    known = [each for each in amounts if each is not None]
    return {
        "cost_usd": number(usage.get("cost_usd")),
        "unknown_cost": int(number(usage.get(UNKNOWN_COST)) or 0),
        "tokens": int(sum(known)) if known else None,
    }


def message_of(record: AttemptRecord | None) -> str:
    """Why it did not pass, in a line."""
    if record is None or record.failure is None:
        return ""
    text = record.failure.in_words
    return text if len(text) <= LONGEST_MESSAGE else f"{text[: LONGEST_MESSAGE - 1]}…"


def outcomes_of(blame: Blame | None, outcome: Outcome | None) -> Sequence[str] | None:
    """The outcomes that both filters allow; None without a filter."""
    if blame is None:
        return None if outcome is None else [outcome.value]
    return [each.value for each in Outcome if each.blame is blame and outcome in (None, each)]


@dataclass(frozen=True, slots=True)
class TrialsAsked:
    """Which trials of a run, in which order."""

    sort: str
    only: Mapping[str, str]
    outcomes: Sequence[str] | None
    """None: all; none of them fits where it is empty."""
    page: Page

    @property
    def key(self) -> tuple[object, ...]:
        """What its order is kept under."""
        outcomes = None if self.outcomes is None else tuple(self.outcomes)
        return (self.sort, tuple(sorted(self.only.items())), outcomes)

    @property
    def start(self) -> int:
        """How many trials come before the page."""
        return self.page.after if isinstance(self.page.after, int) and self.page.after >= 0 else 0


def trials_page(store: Store, reading: Reading, run_id: str, asked: TrialsAsked, now: float) -> bytes:
    """A part of a run's trials, how many there are and how many fit; as it is sent."""
    found = store.views.runs.listed(limit=1, id=run_id)
    if not found:
        raise Problem("not_found", f"There is no run '{run_id}'")
    run, over = found[0], found[0].status in OVER
    # Of a run that goes on the order is a second old at most; of one that has ended all of it stays.
    stamp = run.stamp if over else int(now)
    key = ("trials", run_id, asked.key, asked.start, asked.page.limit)
    if over and (known := reading.answers.get(key, stamp)):
        return known
    total, start, end = int(run.row[7]), asked.start, asked.start + asked.page.limit
    order = _order(store, reading, run_id, asked, total, stamp)
    items = [trial_row(each) for each in store.views.trials.shown(run_id, order[start:end])]
    after = end if end < len(order) else None
    written = msgspec.json.encode(listed(items, after=after, total=total, matched=len(order)))
    return reading.answers.put(key, written, stamp=stamp, weight=len(written)) if over else written


def _order(
    store: Store, reading: Reading, run_id: str, asked: TrialsAsked, total: int, stamp: object
) -> Sequence[int]:
    """The trials that fit, by index."""
    if asked.outcomes is not None and not asked.outcomes:
        return ()
    if asked.sort == "index" and not asked.only and asked.outcomes is None:
        return range(total)
    order = reading.orders.get((run_id, asked.key), stamp)
    if order is None:
        order = store.views.trials.ordered(
            run_id, sort=asked.sort, only=asked.only, outcomes=asked.outcomes or ()
        )
        reading.orders.put((run_id, asked.key), order, stamp=stamp, weight=max(1, len(order)))
    return order
