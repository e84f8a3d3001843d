"""The most that an answer may be, by all that a request says about it.

A provider may read another field than the one that is meant, so the largest of all counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

from proctor.gateway.apis import Api
from proctor.gateway.body import BodyError

MOST_TOKENS = 10_000_000
MOST_CHOICES = 128
_DYNAMIC = -1
"""Gemini's word for a thinking budget that the model decides."""


class OutputLimit(NamedTuple):
    """What a request allows its answer."""

    tokens: int | None = None
    """Of one choice; None: as many as the model can."""
    thinking: int = 0
    """The budget for thinking. It is part of `tokens` in every API, but a provider may raise them to it."""
    choices: int = 1

    @classmethod
    def read(cls, api: Api, values: Mapping[str, Any]) -> Self:
        """BodyError when a limit is not a whole number, negative or absurdly large."""
        tokens = [_whole(name, value, MOST_TOKENS) for name, value in _tokens(api, values)]
        thinking = [
            _whole(name, value, MOST_TOKENS)
            for name, value in _thinking(api, values)
            if not (value == _DYNAMIC and api is Api.GEMINI)
        ]
        choices = [_whole(name, value, MOST_CHOICES) for name, value in _choices(api, values)]
        return cls(max(tokens, default=None), max(thinking, default=0), max((1, *choices)))


_OUTPUT = {
    Api.CHAT: ("max_tokens", "max_completion_tokens"),
    Api.RESPONSES: ("max_output_tokens",),
    Api.MESSAGES: ("max_tokens",),
    Api.GEMINI: ("maxOutputTokens", "max_output_tokens"),
}
_THINKING = {
    Api.CHAT: (("reasoning", "max_tokens"), ("thinking", "budget_tokens")),
    Api.RESPONSES: (("reasoning", "max_tokens"),),
    Api.MESSAGES: (("thinking", "budget_tokens"),),
    Api.GEMINI: tuple(
        (outer, inner)
        for outer in ("thinkingConfig", "thinking_config")
        for inner in ("thinkingBudget", "thinking_budget")
    ),
}
_CHOICES = {
    Api.CHAT: ("n", "best_of"),
    Api.RESPONSES: (),
    Api.MESSAGES: (),
    Api.GEMINI: ("candidateCount", "candidate_count"),
}


def _tokens(api: Api, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for holder in _holders(api, values):
        yield from _stated(holder, _OUTPUT[api])


def _thinking(api: Api, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for holder in _holders(api, values):
        yield from _stated(holder, ("thinking_budget",))
        for outer, inner in _THINKING[api]:
            if isinstance(holder.get(outer), Mapping):
                yield from _stated(holder[outer], (inner,))


def _choices(api: Api, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for holder in _holders(api, values):
        yield from _stated(holder, _CHOICES[api])


def _holders(api: Api, values: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Where an API has its limits; Gemini reads either spelling."""
    if api is not Api.GEMINI:
        return (values,)
    configs = (values.get("generationConfig"), values.get("generation_config"))
    return tuple(config for config in configs if isinstance(config, Mapping))


def _stated(holder: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for name in names:
        if holder.get(name) is not None:
            yield name, holder[name]


def _whole(name: str, value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise BodyError(f"'{name}' is a whole number from 0 to {most:,}; leave it out for no limit")
    return value
