"""A model's service is asked before the run: does it answer, does it know the model?"""

from __future__ import annotations

import asyncio
import socket

import pytest
from aiohttp import web

from proctor.errors import UsageError
from proctor.gateway.apis import Api
from proctor.gateway.check import ProviderCheck, check_models
from proctor.gateway.provider.script import commands
from proctor.gateway.provider.server import FakeProvider
from proctor.gateway.providers import Provider, Providers

pytestmark = pytest.mark.anyio


def at(address: str, key: str = "", apis: frozenset[Api] | None = None, **options: float) -> ProviderCheck:
    found = Provider(name="local", base_url=address, key=key, apis=apis or frozenset({Api.CHAT}))
    return ProviderCheck(found, **{"pause_s": 0, **options})


def service(provider: FakeProvider, key: str = "") -> ProviderCheck:
    return at(provider.base_url, key)


async def test_a_listed_model_is_known_without_a_call():
    async with FakeProvider(commands(), models=["small", "large"]) as provider:
        await service(provider).check(["small", "large"])
    assert provider.requests == []


async def test_a_name_with_a_wildcard_in_the_list_is_known():
    async with FakeProvider(commands(), models=["local/*"]) as provider:
        await service(provider).check(["local/large"])
    assert provider.requests == []


async def test_an_unknown_model_is_refused_with_the_nearest_name():
    async with FakeProvider(commands(), models=["gpt-large", "other"]) as provider:
        with pytest.raises(UsageError, match=r"does not take the model 'gpt-larg'; did you mean 'gpt-large'"):
            await service(provider).check(["gpt-large", "gpt-larg"])


@pytest.mark.parametrize(("name", "fits"), [("small", True), ("smal", False)])
async def test_without_a_list_one_minimal_call_decides(name, fits):
    async with FakeProvider(commands(), models=["small"], lists_models=False) as provider:
        if fits:
            await service(provider).check([name])
        else:
            with pytest.raises(UsageError, match=r"does not take the model 'smal'\. It said: status 404"):
                await service(provider).check([name])
    assert [each["max_tokens"] for each in provider.requests] == [1]


async def test_a_model_that_the_list_lacks_but_the_service_takes_is_accepted():
    class Shy(FakeProvider):
        def _listing(self, api, name):
            return web.json_response({"data": [{"id": "something-else"}]})

    async with Shy(commands()) as provider:
        await service(provider).check(["hidden"])
    assert len(provider.requests) == 1


async def test_a_wrong_key_is_refused_and_never_shown():
    async with FakeProvider(commands(), key="right") as provider:
        with pytest.raises(UsageError, match="refused the key: status 401") as caught:
            await service(provider, "sk-very-secret").check(["any"])
    assert "sk-very-secret" not in str(caught.value)


async def test_a_dead_endpoint_is_refused():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(UsageError, match=f"http://127.0.0.1:{port}/v1 does not answer"):
        await at(f"http://127.0.0.1:{port}/v1").check(["any"])


@pytest.mark.parametrize("api", list(Api))
async def test_one_minimal_call_decides_in_every_api(api):
    async with FakeProvider(commands(), models=["small"], lists_models=False) as provider:
        base = provider.base_url.replace("/v1", "/v1beta") if api is Api.GEMINI else provider.base_url
        await at(base, apis=frozenset({api})).check(["small"])
        with pytest.raises(UsageError, match="does not take the model 'smal'"):
            await at(base, apis=frozenset({api})).check(["smal"])
    assert [(each.api, each.status) for each in provider.sales] == [(api, 200), (api, 404)]


async def test_each_provider_is_asked_for_its_own_models():
    async with FakeProvider(commands(), models=["a"]) as one, FakeProvider(commands(), models=["b"]) as other:
        known = Providers(
            [Provider(name="one", base_url=one.base_url), Provider(name="other", base_url=other.base_url)]
        )
        await asyncio.to_thread(check_models, ["one/a", "other/b"], known)
    assert (one.sales, other.sales) == ([], [])


async def test_a_certificate_of_the_bundle_is_trusted(with_tls):
    certificate, context = with_tls
    async with FakeProvider(commands(), tls=context) as provider:
        with pytest.raises(UsageError, match="certificate verify failed"):
            await service(provider).check(["any"])
        checked = ProviderCheck(Provider(name="x", base_url=provider.base_url), ca_bundle=str(certificate))
        await checked.check(["any"])


async def test_a_service_that_takes_the_connection_and_says_nothing_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UsageError, match="does not answer: no answer within"):
            await at(address, list_timeout_s=0.05).check(["any"])


async def test_a_slow_model_is_not_a_dead_service():
    async with FakeProvider(commands(), lists_models=False, latency_s=60) as provider:
        patient = at(provider.base_url, call_timeout_s=0.05)
        await patient.check(["slow"])


async def test_faults_that_pass_are_waited_out_and_those_that_stay_are_not():
    async with FakeProvider(commands(), lists_models=False, errors=[503, 500]) as provider:
        await service(provider).check(["any"])
    async with FakeProvider(commands(), lists_models=False, errors=[503] * 3) as provider:
        with pytest.raises(UsageError, match="does not answer: status 503: a fault on purpose"):
            await service(provider).check(["any"])


async def test_a_busy_service_is_there():
    async with FakeProvider(commands(), lists_models=False, errors=[429]) as provider:
        await service(provider).check(["any"])
