"""Why an attempt is not scored whose model never answered: one sentence for each way to get no answer."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from proctor.agents.base import AgentFailed, AgentResult, AgentUnavailable, BudgetExhausted
from proctor.errors import HostError, LastingProviderError, ProviderError, SandboxError, TaskError
from proctor.gateway.apis import Api
from proctor.gateway.meter import Call
from proctor.gateway.tokens import Access, Failure
from proctor.trial.task.unanswered import InstructionTooLong, unanswered

MODEL_AGENT = SimpleNamespace(name="a", version="1", needs_model=True)
ANY_AGENT = SimpleNamespace(name="a", version="1")


def call(failure: str = "", message: str = "", status: int = 0) -> Call:
    return Call(
        model="m",
        api=Api.CHAT,
        streamed=False,
        status=status,
        usage=None,
        nano_usd=None,
        request_bytes=1,
        response_bytes=0,
        started_at=0.0,
        first_token_s=None,
        waited_s=0.0,
        worked_s=0.0,
        retries=0,
        failure=failure,
        message=message,
    )


def access(**what: object) -> Access:
    return Access(run_id="r", trial=0, attempt=1, models=("m",), **what)


@pytest.mark.parametrize(
    ("calls", "kind", "words"),
    [
        ([call("rejected", "x answered 400: no tools", 400)], LastingProviderError, "answered 400: no tools"),
        ([call("context_length", "too long", 400)], InstructionTooLong, "too long for the model already"),
        ([call("given_up", "x had not answered")], ProviderError, "x had not answered"),
        ([call("rejected", "no tools"), call("given_up", "open")], LastingProviderError, "no tools"),
        ([call("refused", "the books cannot be written")], HostError, "the books cannot be written"),
        ([call("budget", "the budget is spent")], AgentUnavailable, "the budget is spent, and not one call"),
        ([call(status=0)], ProviderError, "went away before the answer"),
        ([call(status=400)], LastingProviderError, "the answer was 400"),
    ],
)
@pytest.mark.parametrize("agent", [MODEL_AGENT, ANY_AGENT])
@pytest.mark.parametrize("ended", [None, AgentResult(exit_code=0), AgentFailed("x"), TimeoutError("9")])
def test_calls_that_came_to_nothing(calls, kind, words, agent, ended):
    error = unanswered(agent, access(), calls, ended)
    assert type(error) is kind
    assert words in str(error)


def test_a_provider_that_failed_goes_before_what_else_happened():
    failed = access(failure=Failure("provider_failed", "x answered 500"), exhausted="spent")
    assert type(unanswered(MODEL_AGENT, failed, [call("budget")], None)) is ProviderError
    barred = access(failure=Failure("barred", "no key"))
    assert type(unanswered(MODEL_AGENT, barred, [], SandboxError("y"))) is LastingProviderError


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (
            AgentResult(exit_code=126, notes=("Argument list too long",)),
            "could not be started (exit code 126): Arg",
        ),
        (AgentResult(exit_code=133), "died by signal 5 (exit code 133) before it called its model"),
        (AgentResult(exit_code=134), "give the task more memory (sandbox.memory_bytes)"),
        (AgentResult(exit_code=0), "ended with exit code 0 without a call of its model"),
        (AgentResult(exit_code=1, notes=("no login",)), "without a call of its model: no login"),
        (AgentResult(), "ended without a call of its model"),
        (TimeoutError("9"), "did not call its model within its time"),
        (BudgetExhausted("too much output"), "without a call of its model: too much output"),
    ],
)
def test_an_agent_that_needs_a_model_and_never_called_it_is_its_authors_mistake(ended, words):
    error = unanswered(MODEL_AGENT, access(), [], ended)
    assert type(error) is AgentUnavailable
    assert words in str(error)


def test_requests_that_nobody_could_answer_are_the_authors_mistake():
    error = unanswered(ANY_AGENT, access(refusal="it is reached by chat"), [], AgentResult(exit_code=0))
    assert type(error) is AgentUnavailable
    assert str(error).endswith("it is reached by chat")


@pytest.mark.parametrize("code", [0, 1, None])
def test_an_agent_that_may_work_without_a_model_is_judged_when_it_asked_none(code):
    assert unanswered(ANY_AGENT, access(), [], AgentResult(exit_code=code)) is None


@pytest.mark.parametrize("error", [TaskError("no program"), SandboxError("lost"), ProviderError("late")])
def test_what_is_known_already_stays(error):
    assert unanswered(MODEL_AGENT, access(), [], error) is None
