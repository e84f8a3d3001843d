"""Whether a trial is tried again, and when. The blame decides; whether the agent passed never does."""

from __future__ import annotations

from proctor.model.outcome import Blame, Outcome
from proctor.model.spec import Retries


def retry_delay_s(outcome: Outcome, attempt: int, policy: Retries) -> float | None:
    """Seconds to wait before another attempt; None when this attempt is the last. Attempts count from 1."""
    allowed = {
        Blame.INFRASTRUCTURE: policy.infrastructure,
        Blame.PROVIDER: policy.provider,
    }.get(outcome.blame, 0)
    if attempt > allowed:
        return None
    delay: float = policy.backoff_s * 2 ** (attempt - 1)
    return min(policy.max_backoff_s, delay)
