"""Who has which part of a budget: gateways under leases, their portions, and what the dead leave behind.

A portion lets a gateway allow calls without a word to the store. What it holds counts as spent for all others
until it is booked or given back; when its gateway is gone, what it had not used returns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from proctor.errors import StoreError
from proctor.store.database import Transaction

LEASE_S = 15.0
"""How long a gateway may be silent before others take what it holds."""
_SHARE = 16
"""A portion is at most this fraction of what is left, so that the others find something too."""
_MOST_CALLS, _LEAST_CALLS = 64, 4
"""For how many calls like the one that asks a portion is; below the least every call asks for itself."""

_JOIN = """
INSERT INTO gateways (id, expires_at) VALUES (:holder, {now} + :lease_s)
ON CONFLICT (id) DO UPDATE SET expires_at = {now} + :lease_s
"""
_RENEW = "UPDATE gateways SET expires_at = {now} + :lease_s WHERE id = :holder"
_MINE = "SELECT t.id FROM gateways t WHERE t.id = :holder {wait_lock}"
_DEAD = "SELECT t.id FROM gateways t WHERE t.expires_at < {now} ORDER BY t.id LIMIT 8 {row_lock}"
_LEAVE = "DELETE FROM gateways WHERE id = :holder"
_LEFT_OPEN = "SELECT id, run_id, held_tokens, held_nano_usd, scopes FROM model_calls WHERE holder = :holder"
_BOOKED = "UPDATE model_calls SET holder = NULL, scopes = NULL WHERE holder = :holder"
_HELD = """
SELECT CAST(COALESCE(sum(requests), 0) AS BIGINT), CAST(COALESCE(sum(tokens), 0) AS BIGINT),
  CAST(COALESCE(sum(nano_usd), 0) AS BIGINT) FROM portions WHERE scope = :scope AND name = :name
"""
_KEEP = """
INSERT INTO portions (scope, name, holder, requests, tokens, nano_usd)
VALUES (:scope, :name, :holder, :requests, :tokens, :nano_usd)
ON CONFLICT (scope, name, holder)
DO UPDATE SET requests = :requests, tokens = :tokens, nano_usd = :nano_usd
"""
_DROP = "DELETE FROM portions WHERE scope = :scope AND name = :name AND holder = :holder"
_AT_WORK = """
SELECT 1 FROM model_calls c JOIN gateways g ON g.id = c.holder
WHERE c.settled = 0 AND c.holder <> :holder AND g.expires_at > {now}
  AND (CAST(:run AS text) IS NULL OR c.run_id = CAST(:run AS text)) LIMIT 1
"""


class LapsedError(StoreError):
    """The gateway was silent for too long: what it held belongs to others now."""


class Scope(NamedTuple):
    """What a total is kept of: an attempt, a run, a day."""

    kind: str
    name: str


class Amount(NamedTuple):
    """Some of a budget, in each of its units."""

    requests: int = 0
    tokens: int = 0
    nano_usd: int = 0

    def plus(self, other: Amount, sign: int = 1) -> Amount:
        """Both together, or the difference."""
        return Amount(*(mine + sign * its for mine, its in zip(self, other, strict=True)))

    def covers(self, other: Amount) -> bool:
        """Whether there is enough of every unit."""
        return all(mine >= its for mine, its in zip(self, other, strict=True))

    def floor(self) -> Amount:
        """Without what is below nothing."""
        return Amount(*(max(0, each) for each in self))


class LeftOpen(NamedTuple):
    """A call that a gateway had made and not booked when it died."""

    run_id: str
    scopes: tuple[Scope, ...]
    tokens: int
    nano_usd: int


def portion(left: Amount, call: Amount, *, alone: bool = False) -> Amount:
    """What a gateway gets for calls to come: much while there is much, nothing near the end."""
    share = 1 if alone else _SHARE
    if not left.covers(Amount(*(share * _LEAST_CALLS * each for each in call))):
        return Amount()
    parts = zip(left, call, strict=True)
    return Amount(*(min(some // share, _MOST_CALLS * each) if each else 0 for some, each in parts))


def join(tx: Transaction, holder: str) -> None:
    """From now on the gateway is known, for as long as a lease lasts."""
    tx.change(_JOIN, {"holder": holder, "lease_s": LEASE_S})


def renew(tx: Transaction, holder: str) -> None:
    """Another lease. LapsedError when the last one has ended and somebody has noticed."""
    if not tx.change(_RENEW, {"holder": holder, "lease_s": LEASE_S}):
        raise LapsedError("the gateway was silent for longer than its lease")


def check(tx: Transaction, holder: str) -> None:
    """LapsedError unless what the gateway holds is still its own, also until the transaction ends."""
    if not is_known(tx, holder):
        raise LapsedError("the gateway was silent for longer than its lease")


def is_known(tx: Transaction, holder: str) -> bool:
    """Whether nobody has taken over from the gateway yet, also until the transaction ends."""
    return bool(tx.execute(_MINE, {"holder": holder}))


def keep(tx: Transaction, holder: str, amounts: Mapping[Scope, Amount]) -> None:
    """Set what the gateway holds of each scope."""
    for scope, amount in amounts.items():
        place = {"scope": scope.kind, "name": scope.name, "holder": holder}
        if amount == Amount():
            tx.change(_DROP, place)
        else:
            tx.change(_KEEP, {**place, **amount._asdict()})


def held(tx: Transaction, scope: Scope) -> Amount:
    """What all gateways hold of a scope."""
    return Amount(*map(int, tx.execute(_HELD, {"scope": scope.kind, "name": scope.name})[0]))


def others_at_work(tx: Transaction, holder: str, run_id: str | None) -> bool:
    """Whether another living gateway has calls that may still be settled below their estimates."""
    return bool(tx.execute(_AT_WORK, {"holder": holder, "run": run_id}))


def dead(tx: Transaction) -> list[str]:
    """Gateways whose leases have ended, locked; those that somebody else looks at are left to them."""
    return [str(row[0]) for row in tx.execute(_DEAD)]


def left_open(tx: Transaction, holder: str) -> list[LeftOpen]:
    """The calls of a gateway that are in no total yet."""
    found = tx.execute(_LEFT_OPEN, {"holder": holder})
    return [
        LeftOpen(str(run), scopes_in(scopes), int(tokens), int(nano_usd or 0))
        for _, run, tokens, nano_usd, scopes in found
        if scopes
    ]


def leave(tx: Transaction, holder: str) -> None:
    """Forget a gateway, with its portions and shares; its calls stay."""
    tx.change(_BOOKED, {"holder": holder})
    tx.change(_LEAVE, {"holder": holder})


def scopes_text(scopes: Sequence[Scope]) -> str:
    """Scopes as a call's row keeps them."""
    return json.dumps(scopes)


def scopes_in(text: str) -> tuple[Scope, ...]:
    """Scopes from a call's row."""
    return tuple(Scope(*each) for each in json.loads(text))
