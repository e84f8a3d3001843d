"""A gateway, a scripted provider behind it, and a store for the books; all real, on free ports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from tests.store.conftest import Make

from proctor.gateway.apis import Api
from proctor.gateway.app import Gateway
from proctor.gateway.limiter import Retry
from proctor.gateway.prices import Price, Prices
from proctor.gateway.provider.script import Script, Turn, commands
from proctor.gateway.provider.server import FakeProvider
from proctor.gateway.providers import Provider, Providers
from proctor.gateway.tokens import Access
from proctor.store.open import open_store
from proctor.store.store import Store

KEY = "sk-provider-key-that-nobody-may-see"
RUN = "20260101-aaaa"
PRICES = Prices(
    {"fake/priced": Price(input=1.0, output=10.0, cached=0.1, cache_write=1.25, max_output=100)}, "test"
)
DONE = commands()
QUICK = Retry(first_s=0.01, longest_s=0.02, within_s=20, silent_within_s=10)


def says(text: str, **options: object) -> Script:
    return lambda _: Turn(text=text, **options)


async def until(true: Callable[[], object]) -> None:
    """Wait for something that happens in another task."""
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "proctor.db")) as opened:
        Make.run(opened, RUN)
        yield opened


class Setup:
    """One gateway with one provider."""

    def __init__(self, gateway: Gateway, provider: FakeProvider) -> None:
        self.gateway = gateway
        self.provider = provider

    def access(self, **what: object) -> Access:
        values = {"run_id": RUN, "trial": 0, "attempt": 1, "models": ("fake/priced",), **what}
        return self.gateway.issue(**values)

    @property
    def openai_url(self) -> str:
        return f"{self.gateway.base_url}/v1"


@asynccontextmanager
async def running(script: Script = DONE, *, gateway: dict | None = None, **provider: object):
    provider.setdefault("key", KEY)
    async with AsyncExitStack() as stack:
        fake = await stack.enter_async_context(FakeProvider(script, **provider))
        known = Provider(name="fake", base_url=fake.base_url, key_env="K", key=KEY, apis=frozenset(Api))
        options = {"retry": QUICK, **(gateway or {})}
        made = await stack.enter_async_context(Gateway(Providers([known]), PRICES, **options))
        yield Setup(made, fake)


@pytest.fixture
def setup() -> Callable[..., AsyncIterator[Setup]]:
    return running
