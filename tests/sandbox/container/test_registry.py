"""An engine is not sent to registries of private networks for what a task names."""

from __future__ import annotations

import pytest

from proctor.errors import LastingImageError
from proctor.sandbox.container.registry import check_registry
from proctor.sandbox.network_rules import NetworkRules

pytestmark = pytest.mark.anyio
PRIVATE = (
    "127.0.0.1:5000/x",
    "localhost/x",
    "10.1.2.3:5000/x:1",
    "169.254.169.254/latest/meta-data",
    "[::1]:5000/x",
)


@pytest.mark.parametrize("reference", PRIVATE)
async def test_a_registry_in_a_private_network_is_refused(reference: str):
    with pytest.raises(LastingImageError, match="its registry is in a private network"):
        await check_registry(reference, NetworkRules())


@pytest.mark.parametrize("reference", ["11.22.33.44:5000/x", "no-such-host.invalid/x"])
async def test_others_are_the_engine_s_to_ask(reference: str):
    await check_registry(reference, NetworkRules())


async def test_an_address_that_was_opened_is_allowed():
    await check_registry("10.1.2.3:5000/x", NetworkRules(allow=("10.1.2.3",)))
