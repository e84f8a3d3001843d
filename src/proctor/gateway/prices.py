"""What tokens cost: the package's table, extended by a file of the user's. Unknown prices stay unknown."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from proctor.errors import UsageError
from proctor.gateway.estimates import FIRST_ANSWER
from proctor.gateway.output_limit import OutputLimit
from proctor.gateway.usage import Usage

NANO = 1_000_000_000
"""Money is counted in thousand-millionths of a dollar: whole numbers add up without a rest."""
_MILLION = 1_000_000
_MOST_OUTPUT = 32_768
"""The longest answer to expect of a model about which nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One model's prices in dollars per million tokens, and its limits."""

    input: float
    output: float
    cached: float | None = None
    """Of what was read from the provider's cache; as `input` where it is not given."""
    cache_write: float | None = None
    """Of what was written to it; as `input` where it is not given."""
    above: int | None = None
    """Prompts longer than this have the `long_…` prices."""
    long_input: float | None = None
    long_output: float | None = None
    long_cached: float | None = None
    max_output: int | None = None
    context: int | None = None
    as_of: str = ""

    def nano_usd(self, usage: Usage) -> int:
        """The cost of a call in thousand-millionths of a dollar."""
        long = self.above is not None and usage.prompt_tokens > self.above
        one = _either(self.long_input if long else None, self.input)
        out = _either(self.long_output if long else None, self.output)
        cached = _either(self.long_cached if long else self.cached, one)
        written = _either(self.cache_write, one)
        plain = max(0, usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens)
        cost = (
            plain * one
            + usage.cached_tokens * cached
            + usage.cache_write_tokens * written
            + usage.completion_tokens * out
        )
        return round(cost * NANO / _MILLION)


def _either(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


class Prices:
    """Prices by model; a name may have `*`."""

    def __init__(self, models: Mapping[str, Price], version: str) -> None:
        self.version = version
        self._models = models
        self._known: dict[str, Price | None] = {}

    @classmethod
    def load(cls, extra: Path | None = None) -> Prices:
        """The package's table, with what a file adds to it or puts in its place."""
        models, version = _read(Path(__file__).with_name("prices.toml"))
        if extra is not None:
            more, named = _read(extra)
            models, version = more | models | more, f"{version}+{named or extra.name}"
        return cls(models, version)

    def names(self) -> Iterable[str]:
        """The models of the table."""
        return self._models

    def of(self, model: str) -> Price | None:
        """The price of a model by its full name; None: unknown. A router's models cost what theirs cost."""
        if model not in self._known:
            self._known[model] = self._find(model)
        return self._known[model]

    def _find(self, model: str) -> Price | None:
        for name in (model, model.removeprefix("openrouter/")):
            if name in self._models:
                return self._models[name]
        return next((price for name, price in self._models.items() if fnmatchcase(model, name)), None)

    def nano_usd(self, model: str, usage: Usage) -> int | None:
        """What a call cost: what the provider says, else what the table says, else unknown."""
        if usage.stated_usd is not None:
            return round(usage.stated_usd * NANO)
        price = self.of(model)
        return price.nano_usd(usage) if price else None

    def check(self, model: str) -> None:
        """UsageError when the price of a model is unknown: a budget in dollars could not be kept."""
        if self.of(model) is None:
            raise UsageError(
                f"the price of '{model}' is unknown, so a budget in dollars cannot be kept: give one in "
                "tokens or requests, or add the price to a file and name that with PROCTOR_PRICES"
            )

    def upper(self, model: str, prompt_bytes: int, limit: OutputLimit, prompt_tokens: int = 0) -> Usage:
        """A call whose answer is as long as it may be, with a prompt of one token for three bytes."""
        price = self.of(model)
        prompt = prompt_bytes // 3 + 1 + prompt_tokens
        if price:
            prompt = min(prompt, price.context or prompt)
        answer = max(self.longest(model) if limit.tokens is None else limit.tokens, limit.thinking)
        return Usage(prompt_tokens=prompt, completion_tokens=answer * limit.choices)

    def most(self, model: str, prompt_bytes: int, limit: OutputLimit, prompt_tokens: int = 0) -> Usage:
        """The most that a call can use: a token has at least one byte, and all of them may go to a cache."""
        price = self.of(model)
        prompt = prompt_bytes + prompt_tokens
        written = 0
        if price:
            prompt = min(prompt, price.context or prompt)
            written = prompt if (price.cache_write or 0) > price.input else 0
        answer = self.upper(model, 0, limit).completion_tokens
        return Usage(prompt_tokens=prompt, completion_tokens=answer, cache_write_tokens=written)

    def probable(self, model: str, upper: Usage, answer: int) -> Usage:
        """What a call probably uses when an answer has so many tokens; at most one longest answer less."""
        asked = upper.completion_tokens
        return replace(upper, completion_tokens=max(min(answer, asked), asked - self.longest(model)))

    def least(self, model: str) -> Usage:
        """What is held back for the smallest call that does not limit its answer."""
        return self.probable(model, self.upper(model, 0, OutputLimit()), FIRST_ANSWER)

    def longest(self, model: str) -> int:
        """The most tokens that one answer of a model has."""
        price = self.of(model)
        return (price and price.max_output) or _MOST_OUTPUT


def _read(path: Path) -> tuple[dict[str, Price], str]:
    try:
        found = tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"{path}: the table of prices cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from error
    models = found.get("models")
    if not isinstance(models, Mapping):
        raise UsageError(f'{path}: a table of prices has tables such as [models."openai/gpt-5"]')
    return {name: _price(path, name, each) for name, each in models.items()}, str(found.get("version", ""))


def _price(path: Path, name: str, table: Any) -> Price:
    known = {each.name for each in fields(Price)}
    if not isinstance(table, Mapping) or not {"input", "output"} <= table.keys():
        raise UsageError(f"{path}: the model '{name}' needs 'input' and 'output', dollars per million tokens")
    for key, value in table.items():
        if key not in known:
            raise UsageError(f"{path}: '{key}' of '{name}' is unknown; known are {', '.join(sorted(known))}")
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
        if key != "as_of" and not is_number:
            raise UsageError(f"{path}: '{key}' of '{name}' is not a number: {value!r}")
    return Price(**table)
