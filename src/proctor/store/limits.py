"""How many calls a provider's model gets at a time from all gateways together, and who has which part of it.

A gateway says once in a while how many calls it wants, of which runs; it is told its share. Shares are fair
between runs, never add up to more than the limit, and those of the dead are free when their leases end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from proctor.store import portions
from proctor.store.database import Database, Transaction

FIRST_LIMIT = 32.0
MOST_PAUSE_S = 120.0
_FIRST = """
INSERT INTO limits (provider, model, size, slow_start, epoch, closed_until)
VALUES (:provider, :model, :size, 1, 0, 0) ON CONFLICT (provider, model) DO NOTHING
"""
_LOCKED = """
SELECT t.size, t.slow_start, t.epoch, t.closed_until, {now} FROM limits t
WHERE t.provider = :provider AND t.model = :model {wait_lock}
"""
_SET = """
UPDATE limits SET size = :size, slow_start = :slow_start, epoch = :epoch, closed_until = :closed_until
WHERE provider = :provider AND model = :model
"""
_SHARES = """
SELECT s.holder, s.share, s.wanted, s.served_at FROM limit_shares s JOIN gateways g ON g.id = s.holder
WHERE s.provider = :provider AND s.model = :model AND g.expires_at > {now} ORDER BY s.holder
"""
_PUT = """
INSERT INTO limit_shares (provider, model, holder, share, wanted, served_at)
VALUES (:provider, :model, :holder, :share, :wanted, :served_at)
ON CONFLICT (provider, model, holder)
DO UPDATE SET share = :share, wanted = :wanted, served_at = :served_at
"""
_DROP = "DELETE FROM limit_shares WHERE provider = :provider AND model = :model AND holder = :holder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a gateway tells of its calls to one model since it last did."""

    provider: str
    model: str
    most: int
    """What the settings allow at a time."""
    wanted: Mapping[str, int]
    """By run: calls that are under way or wait. Empty: the gateway has no use for a share."""
    busy: int = 0
    answered: int = 0
    refused: tuple[int, ...] = ()
    """The epochs of calls that were refused because there were too many."""
    pause_s: float = 0.0
    """How long the provider asks to be left alone."""


class Share(NamedTuple):
    """What a gateway may do."""

    share: int
    size: float
    """The limit of all together."""
    slow_start: bool
    epoch: int
    closed_s: float
    alone: bool
    """Whether nobody else wants any of it."""


class _Other(NamedTuple):
    holder: str
    share: int
    wanted: Mapping[str, int]
    served_at: float


class Limits:
    """The limits of one store."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def exchange(self, holder: str, report: Report) -> Share:
        """Report, and learn one's share. The gateway's lease is renewed along with it."""
        with self._db.write() as tx:
            portions.join(tx, holder)
            return _exchange(tx, holder, report)


def _exchange(tx: Transaction, holder: str, report: Report) -> Share:
    place = {"provider": report.provider, "model": report.model}
    found = tx.execute(_LOCKED, place)
    if not found:
        tx.change(_FIRST, {**place, "size": min(FIRST_LIMIT, float(report.most))})
        found = tx.execute(_LOCKED, place)
    size, slow_start, epoch, closed_until, now = map(float, found[0])
    size, slow_start, epoch = learned(report, size, slow_start=bool(slow_start), epoch=int(epoch))
    if report.pause_s:
        closed_until = max(closed_until, now + min(report.pause_s, MOST_PAUSE_S))
    state = {"size": size, "slow_start": int(slow_start), "epoch": epoch, "closed_until": closed_until}
    tx.change(_SET, {**place, **state})
    known = [
        _Other(str(row[0]), int(row[1]), json.loads(row[2]), float(row[3]))
        for row in tx.execute(_SHARES, place)
    ]
    others = [each for each in known if each.holder != holder]
    before = next((each for each in known if each.holder == holder), _Other(holder, 0, {}, 0.0))
    me = before._replace(wanted=report.wanted)
    alone = not any(each.wanted or each.share for each in others)
    # Who is alone has all of it, so that it need not ask for every call more.
    target = int(size) if alone and report.wanted else fair_shares([*others, me], int(size))[holder]
    share = max(0, min(target, int(size) - sum(each.share for each in others)))
    # Calls that are under way stay, so what they use is not for others yet.
    counted = max(share, report.busy)
    if report.wanted or counted:
        served_at = now if share else before.served_at
        row = {"share": counted, "wanted": json.dumps(dict(report.wanted)), "served_at": served_at}
        tx.change(_PUT, {**place, "holder": holder, **row})
    else:
        tx.change(_DROP, {**place, "holder": holder})
    return Share(share, size, bool(slow_start), epoch, max(0.0, closed_until - now), alone)


def learned(report: Report, size: float, *, slow_start: bool, epoch: int) -> tuple[float, bool, int]:
    """The limit after what a gateway saw: more per answer, half after a refusal that says something new."""
    for _ in range(report.answered):
        size = min(float(report.most), size + (1.0 if slow_start else 1.0 / size))
    if epoch in report.refused:
        return max(1.0, min(size, float(report.most)) / 2), False, epoch + 1
    return min(size, float(report.most)), slow_start, epoch


def fair_shares(all_of_them: list[_Other], size: int) -> dict[str, int]:
    """By holder: the limit divided between runs, and a run's part between the gateways that work for it.

    Nobody gets more than it wants. Where there are fewer places than takers, who was served longest ago comes
    first.
    """
    longest_ago = sorted(all_of_them, key=lambda each: (each.served_at, each.holder))
    runs: dict[str, int] = {}
    for each in longest_ago:
        for run, wanted in each.wanted.items():
            runs[run] = runs.get(run, 0) + wanted
    shares = dict.fromkeys((each.holder for each in all_of_them), 0)
    for run, places in _divided(runs, size).items():
        within = {each.holder: each.wanted[run] for each in longest_ago if each.wanted.get(run)}
        for holder, some in _divided(within, places).items():
            shares[holder] += some
    return shares


def _divided(wanted: Mapping[str, int], size: int) -> dict[str, int]:
    """As even as can be, in whole places; those who come first get what does not divide."""
    given = dict.fromkeys(wanted, 0)
    open_to = [name for name, some in wanted.items() if some > 0]
    while size > 0 and open_to:
        each = max(1, size // len(open_to))
        for name in open_to[:size]:
            some = min(each, wanted[name] - given[name], size)
            given[name] += some
            size -= some
        open_to = [name for name in open_to if given[name] < wanted[name]]
    return given
