"""Ask a model for its votes through the gateway, with a token and a budget that are the judge's own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from proctor.agents.chat import refusal
from proctor.errors import ProctorError
from proctor.model.spec import Criterion, JudgeSpec
from proctor.trial.judge.prompt import Prompt, answer_schema
from proctor.trial.judge.votes import NotAVote, Vote, parse

if TYPE_CHECKING:
    from proctor.gateway.app import Gateway
    from proctor.gateway.meter import Call
    from proctor.gateway.tokens import Access
    from proctor.store.portions import Scope
    from proctor.store.spending import Budget

APIS = ("chat", "messages")
"""What a judge speaks; the first that its model's provider has is used."""
_MOST_TOKENS = 8192
"""Of an answer, where the API wants a limit."""
_AGAIN = "That is not the answer that was asked for: {why}. Answer with the JSON object alone."


class Unanswered(ProctorError):  # noqa: N818 - says what happened
    """A vote was lost: the provider failed, a budget is spent, or time was up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """For which attempt a judge is asked, and what its calls are booked on."""

    run_id: str
    trial: int
    attempt: int
    token: str
    purse: Scope
    budgets: tuple[Budget, ...] = ()


@dataclass(slots=True, kw_only=True)
class Ballot:
    """What came of asking."""

    votes: list[Vote] = field(default_factory=list)
    void: list[str] = field(default_factory=list)
    """Why an answer was no vote, also when asked once more."""
    lost: list[str] = field(default_factory=list)
    """Why there was no answer."""
    answers: list[list[str]] = field(default_factory=list)
    """What the model said, vote by vote."""
    calls: list[Call] = field(default_factory=list)
    tape: bytes = b""
    spent: bool = False
    """Whether a budget is spent."""


async def ask(
    gateway: Gateway, judge: JudgeSpec, seat: Seat, prompt: Prompt, criteria: Sequence[Criterion]
) -> Ballot:
    """All votes, at the same time. Failures are in the ballot, never raised."""
    access = gateway.issue(
        run_id=seat.run_id,
        trial=seat.trial,
        attempt=seat.attempt,
        models=(judge.model,),
        token=seat.token,
        budgets=seat.budgets,
        purse=seat.purse,
        hosted_tools=False,
    )
    ballot = Ballot(answers=[[] for _ in range(judge.votes)])
    try:
        model = _Model(gateway, access, judge, criteria)
        voting = [_vote(model, prompt, number, ballot) for number in range(judge.votes)]
        await asyncio.gather(*voting)
    finally:
        await gateway.end(access)
        ballot.calls = list(access.calls)
        ballot.spent = bool(access.exhausted)
        if ballot.lost:
            ballot.lost = [_word(access) or each for each in ballot.lost]
        if recorder := gateway.recorder(access):
            ballot.tape = await asyncio.to_thread(recorder.compressed)
            gateway.forget(access)
    return ballot


def _word(access: Access) -> str:
    """What the gateway says of a lost vote."""
    return access.exhausted or (access.failure.message if access.failure else "")


async def _vote(model: _Model, prompt: Prompt, number: int, ballot: Ballot) -> None:
    """One vote. An answer that cannot be read is asked for once more, then the vote is void."""
    said = ballot.answers[number]
    turns = [("user", prompt.vote(number + 1, len(ballot.answers)))]
    for last in (False, True):
        try:
            answer = await model.ask(prompt.system, turns)
        except Unanswered as error:
            ballot.lost.append(str(error))
            return
        said.append(answer)
        try:
            ballot.votes.append(parse(answer, model.criteria))
        except NotAVote as error:
            if last:
                ballot.void.append(str(error))
            turns += [("assistant", answer or "(nothing)"), ("user", _AGAIN.format(why=error))]
        else:
            return


class _Model:
    """The judge's model at the gateway, by whichever API its provider speaks."""

    def __init__(
        self, gateway: Gateway, access: Access, judge: JudgeSpec, criteria: Sequence[Criterion]
    ) -> None:
        provider, _ = gateway.providers.of(judge.model)
        self._api = next((each for each in APIS if each in provider.apis), APIS[0])
        self._ask = partial(gateway.ask, access)
        self._judge = judge
        self._schema: dict[str, Any] | None = answer_schema(criteria)
        self.criteria = criteria

    async def ask(self, system: str, turns: Sequence[tuple[str, str]]) -> str:
        """The text of an answer. A provider that knows no schemas is asked without one."""
        schema = self._schema
        status, body = await self._post(system, turns, schema)
        if status == 400 and schema and self._api == "chat":
            without, again = await self._post(system, turns, None)
            if without == 200:
                self._schema = None
                status, body = without, again
        if status != 200:
            raise Unanswered(f"the model's service refused: status {status}: {refusal(body)}")
        try:
            return _text(self._api, json.loads(body))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise Unanswered(f"the model's service sent an answer that cannot be read: {error!r}") from error

    async def _post(
        self, system: str, turns: Sequence[tuple[str, str]], schema: Mapping[str, Any] | None
    ) -> tuple[int, bytes]:
        build = _chat if self._api == "chat" else _messages
        path, payload = build(self._judge.model, system, turns, schema)
        try:
            async with asyncio.timeout(self._judge.timeout_s):
                return await self._ask(path, json.dumps(payload).encode())
        except TimeoutError as error:
            raise Unanswered(f"no answer of the judge within {self._judge.timeout_s:g} s") from error


def _chat(
    model: str, system: str, turns: Sequence[tuple[str, str]], schema: Mapping[str, Any] | None
) -> tuple[str, dict[str, Any]]:
    messages = [{"role": role, "content": text} for role, text in (("system", system), *turns)]
    payload: dict[str, Any] = {"model": model, "messages": messages}
    if schema:
        named = {"name": "scores", "strict": True, "schema": schema}
        payload["response_format"] = {"type": "json_schema", "json_schema": named}
    return "/v1/chat/completions", payload


def _messages(
    model: str, system: str, turns: Sequence[tuple[str, str]], schema: Mapping[str, Any] | None
) -> tuple[str, dict[str, Any]]:
    messages = [{"role": role, "content": text} for role, text in turns]
    payload: dict[str, Any] = {"model": model, "max_tokens": _MOST_TOKENS, "system": system}
    if schema:
        payload["tools"] = [
            {"name": "scores", "description": "Give the scores of all rubrics.", "input_schema": schema}
        ]
        payload["tool_choice"] = {"type": "tool", "name": "scores"}
    return "/v1/messages", {**payload, "messages": messages}


def _text(api: str, body: Any) -> str:
    if api == "chat":
        return str(body["choices"][0]["message"].get("content") or "")
    for block in body["content"]:
        if block.get("type") == "tool_use":
            return json.dumps(block["input"])
    return "".join(str(block.get("text", "")) for block in body["content"])
