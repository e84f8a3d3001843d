"""A model's service is asked before the run: does it answer, does it know the model?"""

from __future__ import annotations

import socket

import pytest
from aiohttp import web

from proctor.agents.service import Service
from proctor.errors import UsageError
from proctor.gateway.provider.script import commands
from proctor.gateway.provider.server import FakeProvider

pytestmark = pytest.mark.anyio


def service(provider: FakeProvider, key: str = "") -> Service:
    return Service(base_url=provider.base_url, key=key, pause_s=0)


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


async def test_a_dead_endpoint_is_refused_without_its_password():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://user:hidden@127.0.0.1:{port}/v1"
    with pytest.raises(UsageError, match=f"http://127.0.0.1:{port}/v1 does not answer") as caught:
        await Service(base_url=address, pause_s=0).check(["any"])
    assert "hidden" not in str(caught.value)


async def test_a_service_that_takes_the_connection_and_says_nothing_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UsageError, match="does not answer: no answer from"):
            await Service(base_url=address, list_timeout_s=0.05).check(["any"])


async def test_a_slow_model_is_not_a_dead_service():
    async with FakeProvider(commands(), lists_models=False, latency_s=60) as provider:
        patient = Service(base_url=provider.base_url, call_timeout_s=0.05)
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


@pytest.mark.parametrize("address", ["ftp://x", "nonsense", "http://[::1", "http://h:port"])
async def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(UsageError, match="is not an http"):
        await Service(base_url=address).check(["any"])
