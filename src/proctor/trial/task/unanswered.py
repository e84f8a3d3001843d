"""Why an attempt is not scored whose agent has a model, and not one of whose calls was answered.

Nothing was tried then. A provider that refused, failed or hung is to blame, or the author: of the instruction
that no model can read, of the limits under which the agent's program cannot start, of its configuration.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from proctor.agents.base import Agent, AgentFailed, AgentResult, AgentUnavailable, BudgetExhausted
from proctor.errors import HostError, LastingProviderError, ProctorError, ProviderError
from proctor.model.outcome import CONTEXT_LENGTH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proctor.gateway.meter import Call
    from proctor.gateway.tokens import Access

_NOT_STARTED = frozenset({126, 127})
_SIGNAL = 128
_MEMORY = frozenset({signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGKILL, signal.SIGSEGV})
"""How programs end that find no memory; V8 ends itself by one of the first three."""


class InstructionTooLong(AgentUnavailable):
    """The first request was too long for the model already."""

    failure_type = CONTEXT_LENGTH


class ContextOverflow(AgentFailed):
    """The agent let its conversation grow beyond what its model can read; what it left is judged."""

    failure_type = CONTEXT_LENGTH


def of_provider(access: Access) -> ProviderError | None:
    """The provider's failure at the last call of an agent, where it was the provider's."""
    if access.failure is None:
        return None
    if access.failure.kind == "provider_failed":
        return ProviderError(access.failure.message)
    return LastingProviderError(access.failure.message)


def unanswered(
    agent: Agent, access: Access, calls: Sequence[Call], ended: AgentResult | BaseException | None
) -> ProctorError | None:
    """Why nothing is scored; None where that is known already, or the agent did not need its model."""
    if failure := of_provider(access):
        return failure
    if isinstance(ended, ProctorError) and not isinstance(ended, AgentFailed | BudgetExhausted):
        return None
    if calls:
        # What was said to a call tells more than that the next one was cut off.
        last = next((call for call in reversed(calls) if call.failure != "given_up"), calls[-1])
        return _of_call(last)
    if access.refusal or access.exhausted:
        why = access.refusal or access.exhausted
        return AgentUnavailable(f"no call of agent {agent.name} could be made: {why}")
    if getattr(agent, "needs_model", False) or _never_started(ended):
        return AgentUnavailable(f"agent {agent.name} {_without_a_call(ended)}")
    return None


def _of_call(call: Call) -> ProctorError:
    match call.failure:
        case "context_length":
            return InstructionTooLong(
                f"the first request is too long for the model already: {call.message}; choose a model that "
                "reads more, or shorten the instruction"
            )
        case "refused":
            return HostError(call.message)
        case "budget":
            return AgentUnavailable(f"{call.message}, and not one call was answered: allow more")
        case "given_up":
            return ProviderError(call.message)
        case "" if call.status < 400:
            return ProviderError("the agent went away before the answer to its only call had come")
    said = call.message or f"the answer was {call.status}"
    return LastingProviderError(f"not one call of the model was answered: {said}")


def _never_started(ended: AgentResult | BaseException | None) -> bool:
    code = ended.exit_code if isinstance(ended, AgentResult) else None
    return code is not None and (code in _NOT_STARTED or code > _SIGNAL)


def _without_a_call(ended: AgentResult | BaseException | None) -> str:
    """How it ended, as the rest of a sentence."""
    if isinstance(ended, TimeoutError):
        return "did not call its model within its time"
    if not isinstance(ended, AgentResult):
        return f"ended without a call of its model: {ended}"
    code, said = ended.exit_code, "".join(f": {note}" for note in ended.notes[-1:])
    if code is None:
        return f"ended without a call of its model{said}"
    if code in _NOT_STARTED:
        return f"could not be started (exit code {code}){said}"
    if code - _SIGNAL in _MEMORY:
        return (
            f"died by signal {code - _SIGNAL} (exit code {code}) before it called its model, as programs do "
            f"that lack memory; give the task more memory (sandbox.memory_bytes){said}"
        )
    return f"ended with exit code {code} without a call of its model{said}"
