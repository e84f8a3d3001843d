from __future__ import annotations

import pytest

from proctor.errors import UsageError
from proctor.gateway.apis import Api
from proctor.gateway.providers import Providers, check_fit
from proctor.settings import Settings, load_settings

KEYS = {"OPENAI_API_KEY": "o", "ANTHROPIC_API_KEY": "a", "MINE": "m"}


def test_the_first_part_of_a_name_is_the_provider():
    providers = Providers.load(Settings(model_base_url="http://127.0.0.1:1/v1", model_api_key="l"), KEYS)
    provider, model = providers.of("openrouter/openai/gpt-5")
    assert (provider.name, model) == ("openrouter", "openai/gpt-5")
    assert providers.of("openai/gpt-5")[0].credentials() == {"Authorization": "Bearer o"}
    assert providers.of("anthropic/claude")[0].credentials() == {"x-api-key": "a"}
    provider, model = providers.of("some/model")
    assert (provider.name, model, provider.key) == ("local", "some/model", "l")
    assert providers.keys() == {"OPENAI_API_KEY": "o", "ANTHROPIC_API_KEY": "a", "key of local": "l"}


def test_a_table_adds_a_provider_and_changes_one(tmp_path):
    (tmp_path / "proctor.toml").write_text(
        '[providers.mine]\nbase_url = "http://10.0.0.1:8000/v1/"\nkey_env = "MINE"\n'
        'apis = ["chat", "messages"]\n'
        'auth = "x-api-key"\nconcurrency = 3\nheaders = { X-Team = "evals" }\n'
        '[providers.openai]\nbase_url = "https://eu.api.openai.com/v1"\n'
    )
    providers = Providers.load(load_settings({}, tmp_path / "proctor.toml"), KEYS)
    mine, _ = providers.of("mine/llama")
    assert (mine.base_url, mine.key, mine.concurrency) == ("http://10.0.0.1:8000/v1", "m", 3)
    assert mine.apis == {Api.CHAT, Api.MESSAGES}
    openai, _ = providers.of("openai/gpt-5")
    assert (openai.base_url, openai.key) == ("https://eu.api.openai.com/v1", "o")
    assert "o" not in repr(openai).split("key=")


def test_the_table_may_be_a_file_of_its_own(tmp_path):
    (tmp_path / "p.toml").write_text('[mine]\nbase_url = "http://h/v1"\n')
    settings = load_settings({"PROCTOR_PROVIDERS": str(tmp_path / "p.toml")})
    assert Providers.load(settings, {}).of("mine/x")[0].base_url == "http://h/v1"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"base_url": "ftp://x"}, "not an http"),
        ({"base_url": "http://user:pass@x/"}, "holds a user"),
        ({"base_url": "http://[::1/"}, "not an address"),
        ({"key": "sk-1"}, "a key does not belong into a file"),
        ({"apis": ["grpc"]}, "apis are chat"),
        ({"auth": "basic"}, "auth is one of"),
        ({"headers": {"a": 1}}, "headers is a table"),
        ({"concurrency": 0}, "at least 1"),
    ],
)
def test_a_wrong_table_says_what_is_wrong(table, said):
    with pytest.raises(UsageError, match=said) as caught:
        Providers.load(Settings(providers={"mine": {"base_url": "http://x", **table}}), {})
    assert "sk-1" not in str(caught.value)
    assert "pass@" not in str(caught.value)


def test_an_agent_and_a_model_that_do_not_fit_are_refused():
    providers = Providers.load(Settings(), KEYS)
    check_fit({Api.RESPONSES, Api.CHAT}, "openai/gpt-5", providers)
    with pytest.raises(
        UsageError, match=r"codex speaks responses, and 'anthropic/c' .*openai/…, openrouter/…"
    ):
        check_fit({Api.RESPONSES}, "anthropic/c", providers, agent="codex")
    with pytest.raises(UsageError, match="GEMINI_API_KEY"):
        check_fit({Api.GEMINI}, "gemini/flash", providers)
    with pytest.raises(UsageError, match="names no provider: known are anthropic/…"):
        check_fit({Api.CHAT}, "gpt-5", providers)
    with pytest.raises(UsageError, match="PROCTOR_MODEL_BASE_URL"):
        check_fit({Api.CHAT}, "local/x", providers)
