"""A gateway in a process of its own, to be killed: prints address and token, then serves until it dies."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from proctor.gateway.apis import Api
from proctor.gateway.app import Gateway
from proctor.gateway.prices import Price, Prices
from proctor.gateway.providers import Provider, Providers
from proctor.store.open import open_store
from proctor.store.spending import DAY, Budget, Scope

PRICES = Prices({"fake/priced": Price(input=1.0, output=10.0, max_output=100)}, "test")


async def main(url: str, provider: str, run_id: str, budget: dict[str, Any]) -> None:
    known = Provider(name="fake", base_url=provider, apis=frozenset(Api))
    with open_store(url) as store:
        async with Gateway(Providers([known]), PRICES, spending=store.spending) as gateway:
            access = gateway.issue(
                run_id=run_id,
                trial=0,
                attempt=os.getpid(),
                models=("fake/priced",),
                budgets=(Budget(scope=DAY if budget.pop("day", False) else Scope("run", run_id), **budget),),
            )
            print(gateway.base_url, access.token, flush=True)  # noqa: T201 - what it is started for
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])))
