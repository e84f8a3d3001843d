from __future__ import annotations

from pathlib import Path

import pytest

from proctor.errors import UsageError
from proctor.gateway.apis import Api
from proctor.gateway.meter import Call, Sums
from proctor.gateway.prices import Prices
from proctor.gateway.usage import Usage

USED = Usage(
    prompt_tokens=1_000_000, completion_tokens=100_000, cached_tokens=400_000, cache_write_tokens=100_000
)


def test_each_kind_of_token_has_its_price():
    prices = Prices.load()
    assert prices.nano_usd("anthropic/claude-sonnet-4-5", USED) == round(
        (500_000 * 3 + 400_000 * 0.3 + 100_000 * 3.75 + 100_000 * 15) * 1000
    )
    long = Usage(prompt_tokens=200_001, completion_tokens=1)
    assert prices.nano_usd("gemini/gemini-2.5-pro", long) == 200_001 * 2500 + 15_000
    assert prices.of("openrouter/openai/gpt-5") == prices.of("openai/gpt-5")


def test_an_unknown_price_is_unknown_and_what_the_provider_says_wins():
    prices = Prices.load()
    assert prices.nano_usd("local/llama", USED) is None
    prices.check("openai/gpt-5")
    with pytest.raises(UsageError, match="'local/llama' is unknown, so a budget in dollars cannot be kept"):
        prices.check("local/llama")
    assert prices.nano_usd("local/llama", Usage(stated_usd=0.5)) == 500_000_000
    assert prices.nano_usd("openai/gpt-5", Usage(prompt_tokens=8, stated_usd=0.0)) == 0


def test_a_file_extends_the_table_and_replaces_entries(tmp_path: Path):
    extra = tmp_path / "mine.toml"
    free = '[models."local/*"]\ninput = 0\noutput = 0\n'
    extra.write_text(f'version = "7"\n{free}[models."openai/gpt-5"]\ninput = 2\noutput = 3\n')
    prices = Prices.load(extra)
    assert prices.nano_usd("local/llama", USED) == 0
    assert prices.of("openai/gpt-5").input == 2
    assert prices.version.endswith("+7")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x", "not valid TOML"),
        ("a = 1", "has tables such as"),
        ("[models.a]\ninput = 1", "needs 'input' and 'output'"),
        ("[models.a]\ninput = 1\noutput = 2\nouput = 3", "'ouput' of 'a' is unknown"),
        ("[models.a]\ninput = 1\noutput = '2'", "is not a number"),
    ],
)
def test_a_wrong_table_says_what_is_wrong(tmp_path: Path, text: str, said: str):
    path = tmp_path / "p.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        Prices.load(path)
    with pytest.raises(UsageError, match="cannot be read"):
        Prices.load(tmp_path / "none.toml")


def test_sums_say_how_many_costs_are_unknown():
    def call(usage: Usage | None, nano_usd: int | None, failure: str = "") -> Call:
        return Call(
            model="m", api=Api.CHAT, streamed=False, status=200, usage=usage, nano_usd=nano_usd,
            request_bytes=1, response_bytes=2, started_at=0, first_token_s=None, waited_s=1, worked_s=2,
            retries=1, failure=failure,
        )  # fmt: skip

    known = Sums.of([call(USED, 5), call(Usage(), 0), call(None, None, "budget")])
    assert (known.requests, known.cost_usd, known.prompt_tokens, known.retries) == (2, 5e-9, 1_000_000, 2)
    unknown = Sums.of([call(USED, 5), call(None, None)])
    assert (unknown.cost_usd, unknown.unknown_usage, unknown.unknown_cost) == (None, 1, 1)
    assert unknown.to_dict()["cost_usd"] is None
    assert call(USED, 5).to_dict()["prompt_tokens"] == 1_000_000
