"""Which outcome an exception of Harbor's means, and which exception tells an outcome.

Harbor scores every trial without a reward as 0. Here only what an exception's type puts down to the agent
counts in the score; a type that tells nothing is taken for the infrastructure's until the tests begin, and
for the task's from then on.
"""

from __future__ import annotations

from collections.abc import Mapping

from proctor.model.outcome import Outcome

_TYPES: Mapping[Outcome, tuple[str, ...]] = {
    Outcome.AGENT_TIMEOUT: ("AgentTimeoutError",),
    Outcome.AGENT_ERROR: (
        "NonZeroAgentExitCodeError",
        "AgentSafetyRefusalError",
        "ContextLengthExceededError",
        "ContextWindowExceededError",
        "OutputLengthExceededError",
        "OutputTokenExceededError",
    ),
    Outcome.BUDGET_EXHAUSTED: ("BudgetExhausted",),
    Outcome.VERIFIER_ERROR: ("RewardFileNotFoundError",),
    Outcome.VERIFIER_TIMEOUT: ("VerifierTimeoutError",),
    Outcome.REWARD_INVALID: ("VerifierOutputParseError", "RewardFileEmptyError"),
    Outcome.SANDBOX_ERROR: (
        "SandboxError",
        "AddTestsDirError",
        "AgentSetupTimeoutError",
        "DownloadVerifierDirError",
        "EnvironmentStartTimeoutError",
        "HealthcheckError",
        "MemoryLimitExceededError",
        "SandboxLikelyOutOfMemoryError",
        "SSHAccessError",
    ),
    Outcome.IMAGE_ERROR: ("SandboxBuildFailedError",),
    Outcome.WORKER_LOST: ("WorkerLost",),
    Outcome.STARVED: ("Starved",),
    Outcome.PROVIDER_ERROR: (
        "ApiError",
        "AgentAuthenticationError",
        "ApiConnectionClosedError",
        "ApiConnectionError",
        "ApiInternalServerError",
        "ApiOverloadedError",
        "ApiProviderResourceNotFoundError",
        "ApiRateLimitError",
        "ApiResponseStalledError",
        "ApiUsageLimitError",
        "ModelNotFoundError",
        "NetworkConnectionError",
        "UnknownApiError",
        # What the model libraries inside agents raise.
        "APIConnectionError",
        "APIError",
        "APIStatusError",
        "APITimeoutError",
        "AuthenticationError",
        "InternalServerError",
        "RateLimitError",
        "ServiceUnavailableError",
    ),
    Outcome.CANCELLED: ("CancelledError", "KeyboardInterrupt"),
    Outcome.SKIPPED: ("Skipped",),
    Outcome.INVALID: ("TaskError",),
}
"""The first type of each is the one that an export writes."""
_OUTCOMES = {name: outcome for outcome, names in _TYPES.items() for name in names}


def outcome_of(exception_type: str, *, verifying: bool) -> tuple[Outcome, bool]:
    """The outcome, and whether the type says it; `verifying`: the tests had begun."""
    known = _OUTCOMES.get(exception_type)
    if known:
        return known, True
    return (Outcome.VERIFIER_ERROR if verifying else Outcome.SANDBOX_ERROR), False


def exception_type(outcome: Outcome) -> str:
    """The type that tells an outcome; empty when the reward says it all."""
    return _TYPES.get(outcome, ("",))[0]
