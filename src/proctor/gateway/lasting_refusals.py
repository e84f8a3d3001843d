"""Refusals that last: a provider that refuses a key, or wants money, is asked no more in that run.

A key and an account do not depend on the request, so 401 and a spent quota end the calls at once. 402 and 403
may also be about one request (too many tokens for what is left, an input that a filter stopped): after an
answer they end the calls only when a second attempt is refused too. So no agent ends the run of others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

ABOUT_KEY = frozenset({401, 403})
_AT_ONCE = frozenset({401, 429})
_LASTING = frozenset({401, 402, 403, 429})


@dataclass(slots=True)
class _Provider:
    answered: bool = False
    attempts: set[str] = field(default_factory=set)
    """Attempts that were refused since its last answer."""
    reason: str = ""
    status: int = 0


class LastingRefusals:
    """What the providers of one gateway refuse for good, by run."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Provider] = {}

    def reason(self, run_id: str, provider: str) -> tuple[int, str]:
        """Status and sentence with which a run's calls of a provider are refused; 0 while it is asked."""
        known = self._known.get((run_id, provider))
        return (known.status, known.reason) if known else (0, "")

    def answered(self, run_id: str, provider: str) -> None:
        """It took a call."""
        known = self._known.setdefault((run_id, provider), _Provider())
        known.answered = True
        known.attempts.clear()

    def refused(self, run_id: str, attempt: str, provider: str, status: int, message: str) -> bool:
        """It refused a call, not for a while but for good; whether it is asked no more."""
        if status not in _LASTING:
            return False
        known = self._known.setdefault((run_id, provider), _Provider())
        known.attempts.add(attempt)
        if status in _AT_ONCE or not known.answered or len(known.attempts) > 1:
            known.status, known.reason = status, message
        return bool(known.status)
