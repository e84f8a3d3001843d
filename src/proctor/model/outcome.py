"""How an attempt ended, and who is to blame. Scores and retries follow from the blame alone."""

from __future__ import annotations

from enum import StrEnum

ENVIRONMENT_BROKEN = "environment_broken"
"""Why an attempt failed whose tests broke in its sandbox, although they work in an untouched one."""
CONTEXT_LENGTH = "context_length"
"""Why a model refused a conversation: it cannot read so much. `failure.type` of an attempt that ended so."""


class Blame(StrEnum):
    """Who caused an outcome. For an experiment the agent is the code under measurement."""

    AGENT = "agent"
    TASK = "task"
    INFRASTRUCTURE = "infrastructure"
    PROVIDER = "provider"
    PERSON = "person"
    AUTHOR = "author"


class Outcome(StrEnum):
    """How one attempt ended."""

    PASSED = "passed"
    FAILED = "failed"
    PARTIAL = "partial"
    AGENT_TIMEOUT = "agent_timeout"
    AGENT_ERROR = "agent_error"
    BUDGET_EXHAUSTED = "budget_exhausted"
    VERIFIER_ERROR = "verifier_error"
    VERIFIER_TIMEOUT = "verifier_timeout"
    REWARD_INVALID = "reward_invalid"
    SANDBOX_ERROR = "sandbox_error"
    IMAGE_ERROR = "image_error"
    WORKER_LOST = "worker_lost"
    STARVED = "starved"
    PROVIDER_ERROR = "provider_error"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    INVALID = "invalid"

    blame: Blame
    """Who is responsible for this outcome."""
    scored: bool
    """Whether it counts in the score: only what the agent itself caused."""
    error: bool
    """Whether somebody else's fault kept the agent from being judged: it widens the bounds of a score. What a
    person cancelled or skipped is neither scored nor an error."""
    broken: bool
    """Whether a machine or a provider failed."""
    retryable: bool
    """Whether a policy may try again. Never depends on whether the agent passed."""


_BLAME = {
    **dict.fromkeys(
        (
            Outcome.PASSED,
            Outcome.FAILED,
            Outcome.PARTIAL,
            Outcome.AGENT_TIMEOUT,
            Outcome.AGENT_ERROR,
            Outcome.BUDGET_EXHAUSTED,
        ),
        Blame.AGENT,
    ),
    **dict.fromkeys((Outcome.VERIFIER_ERROR, Outcome.VERIFIER_TIMEOUT, Outcome.REWARD_INVALID), Blame.TASK),
    **dict.fromkeys(
        (Outcome.SANDBOX_ERROR, Outcome.IMAGE_ERROR, Outcome.WORKER_LOST, Outcome.STARVED),
        Blame.INFRASTRUCTURE,
    ),
    Outcome.PROVIDER_ERROR: Blame.PROVIDER,
    Outcome.CANCELLED: Blame.PERSON,
    Outcome.SKIPPED: Blame.PERSON,
    Outcome.INVALID: Blame.AUTHOR,
}
# Attributes and not properties: readers of large runs ask a million times.
for _outcome, _blame in _BLAME.items():
    _outcome.blame = _blame
    _outcome.scored = _blame is Blame.AGENT
    _outcome.error = _blame not in {Blame.AGENT, Blame.PERSON}
    _outcome.broken = _outcome.retryable = _blame in {Blame.INFRASTRUCTURE, Blame.PROVIDER}


def from_reward(reward: float) -> Outcome:
    """The outcome that a valid reward means."""
    if reward >= 1:
        return Outcome.PASSED
    return Outcome.PARTIAL if reward > 0 else Outcome.FAILED


def reward_of(outcome: Outcome | None, reward: float | None) -> float | None:
    """What a trial is worth in the score: its recorded reward, else 1 if it passed and 0 if not.

    None where it has no result or is not scored.
    """
    if outcome is None or not outcome.scored:
        return None
    return reward if reward is not None else float(outcome is Outcome.PASSED)


def is_pass(outcome: Outcome | None, reward: float | None) -> bool:
    """Whether a trial passed: it is scored, with a whole reward. An agent that ran out of time may have."""
    return (reward_of(outcome, reward) or 0.0) >= 1
