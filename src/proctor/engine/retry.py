"""Whether a trial is tried again, and when. The blame decides; whether the agent passed never does."""

from __future__ import annotations

from proctor.model.outcome import Blame, Outcome
from proctor.model.record import Failure
from proctor.model.spec import Retries


def retry_delay_s(
    outcome: Outcome, attempt: int, policy: Retries, failure: Failure | None = None
) -> float | None:
    """Seconds to wait before another attempt; None when this attempt is the last. Attempts count from 1.

    What cannot get better by itself, such as an image that does not exist, is not tried again.
    """
    if failure and failure.lasting:
        return None
    allowed = {
        Blame.INFRASTRUCTURE: policy.infrastructure,
        Blame.PROVIDER: policy.provider,
    }.get(outcome.blame, 0)
    if attempt > allowed:
        return None
    delay: float = policy.backoff_s * 2 ** (attempt - 1)
    return min(policy.max_backoff_s, delay)
