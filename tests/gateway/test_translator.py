from __future__ import annotations

import sys
from pathlib import Path

import pytest

from proctor.errors import UsageError
from proctor.gateway.apis import Api
from proctor.gateway.providers import Provider, Providers, check_fit
from proctor.gateway.translator import Translators, configuration
from proctor.settings import Settings

pytestmark = pytest.mark.anyio
STAND_IN = [sys.executable, str(Path(__file__).parents[1] / "integration/litellm_stand_in.py")]
KEY = "sk-known-fake-key"


def house(*apis: Api, **more) -> Provider:
    given = {"base_url": "http://127.0.0.1:9/v1", "key": KEY, "translate": "litellm", **more}
    return Provider(name="house", apis=frozenset(apis), **given)


@pytest.mark.parametrize(
    ("api", "model", "address"),
    [
        (Api.CHAT, "custom_openai/*", "http://127.0.0.1:9/v1"),
        (Api.RESPONSES, "openai/responses/*", "http://127.0.0.1:9/v1"),
        (Api.MESSAGES, "anthropic/*", "http://127.0.0.1:9"),
        (Api.GEMINI, "gemini/*", "http://127.0.0.1:9/v1"),
    ],
)
def test_litellm_is_told_the_providers_api_and_never_its_key(api, model, address):
    told = configuration(house(api, headers={"x-team": "a"}))
    given = told["model_list"][0]["litellm_params"]
    assert (given["model"], given["api_base"]) == (model, address)
    assert given["extra_headers"] == {"x-team": "a"}
    assert KEY not in str(told)


async def test_one_that_runs_is_used_at_its_address_with_its_own_key():
    provider = house(Api.CHAT, translate="http://proxy:4000/v1", translate_key="sk-theirs")
    translators = Translators()
    assert translators.of(provider, Api.MESSAGES) is None
    await translators.open(provider)
    found = translators.of(provider, Api.MESSAGES)
    assert (found.base_url, found.key, found.name) == ("http://proxy:4000/v1", "sk-theirs", "house")
    assert translators.of(provider, Api.GEMINI).base_url == "http://proxy:4000/v1beta"
    assert found.without_keys(f"bad {KEY} or sk-theirs".encode()) == b"bad [redacted] or [redacted]"


async def test_one_that_does_not_start_says_why_without_the_key():
    translators = Translators(STAND_IN)
    with pytest.raises(UsageError, match=r"ended with 1\. It said: cannot start with \[redacted\]"):
        await translators.open(house(Api.CHAT))
    await translators.close()
    with pytest.raises(UsageError, match="agents install litellm"):
        await Translators().open(house(Api.CHAT))


async def test_one_is_started_once_and_ends_with_the_gateway():
    translators = Translators(STAND_IN)
    await translators.open(house(Api.MESSAGES))
    first = translators.of(house(Api.MESSAGES), Api.CHAT)
    await translators.open(house(Api.MESSAGES))
    assert translators.of(house(Api.MESSAGES), Api.CHAT) == first
    await translators.close()
    assert translators.of(house(Api.MESSAGES), Api.CHAT) is None


def load(**table) -> Providers:
    given = {"base_url": "http://h/v1", "apis": ["messages"], **table}
    return Providers.load(Settings(providers={"house": given}), {"THEIRS": "sk-t"})


def test_a_pair_that_does_not_fit_is_refused_unless_litellm_is_named():
    with pytest.raises(UsageError, match=r'translate = "litellm" in \[providers.house\]'):
        check_fit({Api.CHAT}, "house/m", load())
    check_fit({Api.CHAT}, "house/m", load(translate="litellm"))
    found, _ = load(translate="http://proxy:4000", translate_key_env="THEIRS").of("house/m")
    assert found.translate_key == "sk-t"
    assert found.translates_for({Api.CHAT})
    assert not found.translates_for({Api.CHAT, Api.MESSAGES})


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"translate": "magic"}, "translate is not an http"),
        ({"translate": "http://a:b@proxy"}, "holds a user"),
        ({"translate": "litellm", "translate_key_env": "X"}, "translate_key_env is for"),
    ],
)
def test_what_cannot_translate_is_refused(table, said):
    with pytest.raises(UsageError, match=said):
        load(**table)


def test_a_key_that_is_not_set_is_missing():
    found, _ = load(translate="http://proxy:4000", translate_key_env="NOT_SET").of("house/m")
    assert "NOT_SET" in found.lacks()
