"""Runs as rows of a list: found, sorted and written out.

Of a run that has ended, or of which nothing has begun, the row is kept as bytes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import msgspec

from proctor.model.plan import Plan
from proctor.model.run import RunInfo
from proctor.model.trial import RunStatus
from proctor.server.reading.kept import Kept
from proctor.server.reading.summaries import Summaries, Summary, reported, verdict_of
from proctor.store.store import Store
from proctor.store.views.runs import Listed, Spent

MOST_ROWS = 5_000
"""Rows that are kept; also how many of the newest runs are looked at for a filter or an order of its own."""
SPARK = 20
"""Runs of a series that a spark line shows."""
WARMED = 100
"""Rows that are made when the server starts."""
LARGE = 1_000
"""Trials from which on a row takes a while: only one thread makes such rows, and the others wait for it."""
OVER = frozenset({RunStatus.DONE, RunStatus.CANCELLED, RunStatus.INTERRUPTED})


@dataclass(frozen=True, slots=True)
class Row:
    """A run of a list: as data, and as it is sent."""

    data: dict[str, Any]
    written: msgspec.Raw


@dataclass(slots=True)
class RunRows:
    """Makes rows, and keeps those that cannot change."""

    by_workers: bool = False
    """Whether workers elsewhere execute runs: then it is told when none of them can."""
    summaries: Summaries = field(default_factory=Summaries)
    _rows: Kept[Row] = field(default_factory=lambda: Kept(MOST_ROWS))
    _summaries: Kept[Summary] = field(default_factory=lambda: Kept(MOST_ROWS))
    _sparks: Kept[list[float]] = field(default_factory=lambda: Kept(MOST_ROWS))
    _large: threading.RLock = field(default_factory=threading.RLock)

    def of(self, store: Store, runs: Sequence[Listed], *, spark: bool = True) -> list[Row]:
        """A row for each run, in their order."""
        found: dict[str, Row] = {}
        for each in runs:
            if kept := self._rows.get((each.id, spark), self._stamp(each)):
                found[each.id] = kept
        left = [each for each in runs if each.id not in found]
        if left:
            views = store.views.runs
            held, spent = views.held(left), views.spent(left)
            running = [each.id for each in left if each.status == RunStatus.RUNNING]
            stalled = store.stalled() if running else set()
            waiting = store.unattended(running) if self.by_workers else {}
            for each, info in zip(left, views.infos(left), strict=True):
                told = {"stalled": each.id in stalled, "waiting": waiting.get(each.id, "")}
                with self._large if info.total >= LARGE else nullcontext():
                    kept = self._rows.get((each.id, spark), self._stamp(each))
                    found[each.id] = kept or self._row(store, each, info, held, spent, told, spark=spark)
        return [found[each.id] for each in runs]

    def new(self, store: Store, listed: Listed, info: RunInfo, plan: Plan) -> Row:
        """The row of a run that was just made; its trials need not be read."""
        if info.kind == "task":
            self._summaries.put(info.id, Summary.of_plan(info, plan), stamp=listed.stamp)
        return self._row(store, listed, info, {}, {}, {"stalled": False, "waiting": ""}, spark=True)

    def _row(
        self,
        store: Store,
        listed: Listed,
        info: RunInfo,
        held: Mapping[str, int],
        spent: Mapping[str, Spent],
        told: Mapping[str, Any],
        *,
        spark: bool,
    ) -> Row:
        running = held.get(info.id, 0)
        over = info.status in OVER and not running
        still = over or (info.status is RunStatus.PENDING and not running and not info.counts)
        summary = self._came_to(store, listed, info) if still else self.summaries.live(store, info)
        cost = spent.get(info.id) or (reported(store, info, summary.models) if over else Spent())
        data: dict[str, Any] = {
            "id": info.id,
            "name": info.name,
            "kind": info.kind,
            "execution": info.execution,
            "status": info.status,
            **told,
            "created_at": info.created_at,
            "started_at": info.started_at,
            "finished_at": info.finished_at,
            "total": info.total,
            "done": info.done,
            "counts": info.counts,
            "running": running,
            "pending": max(0, info.total - sum(info.counts.values()) - running),
            "tags": info.tags,
            "notes": info.notes,
            "seed": info.seed,
            "owner": listed.owner,
            "project": listed.project,
            "wanted": listed.wanted,
            "queued_at": listed.queued_at,
            "priority": listed.priority,
            "failure": listed.failure,
            "agents": summary.agents,
            "models": summary.models,
            "headline": summary.headline,
            "score": summary.score,
            "scores": summary.scores,
            "passed": summary.passed,
            "scored": summary.scored,
            "errors": summary.errors,
            "cost_usd": cost.cost_usd,
            "unknown_cost": cost.unknown_cost,
            "tokens": cost.tokens,
            "requests": cost.requests,
            "gate": verdict_of(store, info) if over else None,
            "spark": self._spark(store, listed, summary.score) if spark else [],
        }
        row = Row(data, msgspec.Raw(msgspec.json.encode(data)))
        return self._rows.put((info.id, spark), row, stamp=self._stamp(listed)) if still else row

    def _came_to(self, store: Store, listed: Listed, info: RunInfo) -> Summary:
        """Once for the row of a run and for its place in the spark lines of others."""
        return self._summaries.of(info.id, lambda: self.summaries.make(store, info), stamp=listed.stamp)

    def _spark(self, store: Store, listed: Listed, score: Mapping[str, Any] | None) -> list[float]:
        """The scores of the last runs of the series up to this one; nothing where there is only one."""
        if score is None:
            return []
        name = str(listed.row[2])
        runs = store.views.runs.listed(limit=SPARK, series=name, until=listed.id, project=listed.project)
        stamp = tuple((each.id, each.last_event) for each in runs[1:])
        earlier = self._sparks.get(listed.id, stamp)
        if earlier is None:
            rows = self.of(store, [each for each in runs[1:] if each.status in OVER], spark=False)
            earlier = [row.data["score"]["value"] for row in reversed(rows) if row.data["score"]]
            self._sparks.put(listed.id, earlier, stamp=stamp)
        return [*earlier, score["value"]] if earlier else []

    def _stamp(self, listed: Listed) -> tuple[Any, ...]:
        """A verdict is a file beside a run that has ended, which no event tells of."""
        if listed.status not in OVER:
            return listed.stamp
        folder = _HEADS.decode(str(listed.row[8])).folder
        try:
            written = os.stat(f"{folder}/gate.json").st_mtime_ns if folder else 0  # noqa: PTH116 - in each row
        except OSError:
            written = 0
        return (*listed.stamp, written)


class _Head(msgspec.Struct):
    folder: str = ""


_HEADS = msgspec.json.Decoder(_Head)


SORTS: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    "created": lambda row: row["created_at"],
    "name": lambda row: row["name"].lower(),
    "status": lambda row: row["status"],
    "score": lambda row: row["scores"][0]["value"] if row["scores"] else None,
    "cost": lambda row: row["cost_usd"],
    "tokens": lambda row: row["tokens"] or None,
    "took": lambda row: (
        row["finished_at"] - row["started_at"] if row["finished_at"] and row["started_at"] else None
    ),
    "done": lambda row: row["done"],
    "total": lambda row: row["total"],
}
"""What runs may be sorted by; those without a value come last."""


def in_order(rows: Sequence[Row], sort: str) -> list[Row]:
    """Rows sorted by one of `SORTS`, with `-` the other way."""
    key = SORTS[sort.removeprefix("-")]
    known = [row for row in rows if key(row.data) is not None]
    unknown = [row for row in rows if key(row.data) is None]
    return sorted(known, key=lambda row: key(row.data), reverse=sort.startswith("-")) + unknown


_WORDS = {
    "agent": "agents",
    "model": "models",
    "tag": "tags",
}
_TEXTS = ("id", "name", "notes", "owner", "kind", "status", "execution", "project")


def fits(row: Mapping[str, Any], words: Sequence[tuple[str, str]]) -> bool:
    """Whether a row has all these words: `(field, text)`, or `("", text)` for anywhere."""
    return all(_has(row, name, text) for name, text in words)


def _has(row: Mapping[str, Any], name: str, text: str) -> bool:
    if name in _WORDS:
        return any(text == each.lower() for each in row[_WORDS[name]])
    if name == "gate":
        return bool(row["gate"]) and text == row["gate"]["verdict"].lower()
    if name:
        return text == str(row[name]).lower()
    everywhere = [str(row[each]) for each in _TEXTS]
    everywhere += [each for field_ in _WORDS.values() for each in row[field_]]
    return any(text in each.lower() for each in everywhere)


def words_of(q: str) -> list[tuple[str, str]]:
    """What somebody looks for: `agent:oracle nightly` is a field and a text."""
    found = []
    for word in q.lower().split():
        name, colon, text = word.partition(":")
        known = name in _WORDS or name in _TEXTS or name == "gate"
        found.append((name, text) if colon and known and text else ("", word))
    return found


def warm(store: Store, rows: RunRows, stopped: Callable[[], bool]) -> None:
    """Work out the newest rows before anybody asks: a large run takes a while the first time."""
    for each in store.views.runs.listed(limit=WARMED):
        if stopped():
            return
        rows.of(store, [each])
