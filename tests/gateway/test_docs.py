"""What the page about the gateway says is so."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import aiohttp
import pytest
from tests.gateway.conftest import RUN, says

from proctor.agents.registry import make_agent
from proctor.gateway.apis import Api, sdk_environment
from proctor.gateway.meter import Sums
from proctor.gateway.prices import Prices
from proctor.gateway.provider.script import load
from proctor.gateway.provider.server import FakeProvider
from proctor.gateway.providers import Providers
from proctor.gateway.replay import DROPPED, MASKS, NUMBERED
from proctor.settings import Settings, load_settings
from proctor.spec.load import from_mapping

PAGE = (Path(__file__).parents[2] / "docs/how-to/model-gateway.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SPEC, PROVIDERS, TRANSLATED, PRICES, SCRIPT = [body for language, body in BLOCKS if language == "toml"]
(PYTHON,) = [body for language, body in BLOCKS if language == "python"]


def test_its_files_are_read(tmp_path: Path):
    for name, text in (("proctor.toml", PROVIDERS), ("prices.toml", PRICES), ("script.toml", SCRIPT)):
        (tmp_path / name).write_text(text)
    providers = Providers.load(load_settings({}, tmp_path / "proctor.toml"), {})
    assert providers.of("house/x")[0].concurrency == 32
    (tmp_path / "translated.toml").write_text(TRANSLATED)
    translated = Providers.load(load_settings({}, tmp_path / "translated.toml"), {})
    assert translated.of("anthropic/x")[0].translate == "litellm"
    assert translated.of("house/x")[0].translate == "http://127.0.0.1:4000"
    assert Prices.load(tmp_path / "prices.toml").of("house/x").max_output == 16384
    scenario = load(tmp_path / "script.toml")
    assert (len(scenario.turns), len(scenario.faults)) == (2, 2)


def test_it_lists_every_known_provider_and_every_rule_of_replay():
    for provider in Providers.load(Settings(), {}):
        assert f"`{provider.name}/" in PAGE
        assert ", ".join(sorted(provider.apis, key=list(Api).index)) in PAGE
    for word in {*DROPPED, *NUMBERED, *(name for name, _ in MASKS)}:
        assert f"`{word}`" in PAGE, word


@pytest.mark.anyio
async def test_its_program_works(store, monkeypatch: pytest.MonkeyPatch):
    names: dict = {}
    exec(PYTHON, names)

    async def use(url: str, token: str) -> None:
        body = {"model": "small", "messages": []}
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"{url}/v1/chat/completions", json=body, headers=headers) as answer,
        ):
            assert answer.status == 200

    async with FakeProvider(says("hi")) as provider:
        monkeypatch.setenv("PROCTOR_MODEL_BASE_URL", provider.base_url)
        sums, failure, tape = await names["work"](store, RUN, use)
    assert (sums.requests, sums.cost_usd, failure) == (1, None, None)
    assert tape


def test_the_spec_of_the_page_can_be_read(tmp_path: Path):
    spec = from_mapping(tomllib.loads(SPEC), base_dir=str(tmp_path))
    assert spec.tasks[0].models == ("anthropic/claude-haiku-4-5",)
    assert make_agent("command", spec.tasks[0].agent_options).apis == ("messages",)


def test_every_variable_of_the_page_is_given():
    assert all(f"`{name}`" in PAGE for name in sdk_environment("http://x", "t"))


def test_every_field_of_usage_is_on_the_page():
    assert all(f"`{name}`" in PAGE for name in Sums().to_dict())
