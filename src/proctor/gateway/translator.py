"""The optional way to a provider whose API an agent does not speak: a LiteLLM proxy, ours or one that runs.

Ours is a process on loopback, started for the first agent that needs it and ended with the gateway. The
provider's key is in its environment and nowhere else; it takes calls with a key made for it alone.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from proctor.errors import UsageError
from proctor.gateway.apis import Api
from proctor.gateway.providers import LITELLM, Provider
from proctor.prctl import die_with_parent
from proctor.processes import host_environment

START_S = 180.0
"""How long it may take until it answers: seven seconds on an idle machine."""
_END_S = 10.0
_SHOWN = 1000
_KEY = "PROCTOR_UPSTREAM_KEY"


def configuration(provider: Provider) -> dict[str, Any]:
    """What LiteLLM is told: any model, by the provider's own API, with a key from its environment."""
    root = provider.base_url.removesuffix("/v1")
    if Api.CHAT in provider.apis:
        model, address = "custom_openai/*", provider.base_url
    elif Api.RESPONSES in provider.apis:
        model, address = "openai/responses/*", provider.base_url
    elif Api.MESSAGES in provider.apis:
        model, address = "anthropic/*", root
    else:
        model, address = "gemini/*", provider.base_url
    given: dict[str, Any] = {"model": model, "api_base": address, "api_key": f"os.environ/{_KEY}"}
    if provider.headers:
        given["extra_headers"] = dict(provider.headers)
    return {
        "model_list": [{"model_name": "*", "litellm_params": given}],
        # The gateway retries; what a provider does not know is left out and not refused.
        "litellm_settings": {"telemetry": False, "drop_params": True, "num_retries": 0},
        "router_settings": {"num_retries": 0, "disable_cooldowns": True},
    }


class Translators:
    """A LiteLLM for each provider that needs one."""

    def __init__(self, litellm: Sequence[str] = (), ca_bundle: str = "") -> None:
        self._argv = tuple(litellm)
        self._ca_bundle = ca_bundle
        self._opening = asyncio.Lock()
        self._ready: dict[str, tuple[str, str]] = {}
        """Provider → address and key of its LiteLLM."""
        self._running: list[tuple[asyncio.subprocess.Process, tempfile.TemporaryDirectory[str]]] = []

    async def open(self, provider: Provider) -> None:
        """Make sure that there is one; UsageError says what is missing."""
        async with self._opening:
            if provider.name in self._ready:
                return
            if provider.translate == LITELLM:
                self._ready[provider.name] = await self._start(provider)
            else:
                address = provider.translate.removesuffix("/v1")
                self._ready[provider.name] = address, provider.translate_key

    def of(self, provider: Provider, api: Api) -> Provider | None:
        """The provider as an API of its LiteLLM; None when it has none that is open."""
        if provider.name not in self._ready:
            return None
        address, key = self._ready[provider.name]
        version = "/v1beta" if api is Api.GEMINI else "/v1"
        return replace(
            provider,
            base_url=address + version,
            key=key,
            auth="bearer",
            headers={},
            apis=frozenset(Api),
            hidden=(provider.key,),
        )

    async def close(self) -> None:
        """End those that were started."""
        self._ready.clear()
        for child, folder in self._running:
            await _end(child)
            folder.cleanup()
        self._running.clear()

    async def _start(self, provider: Provider) -> tuple[str, str]:
        if not self._argv:
            raise UsageError(
                f"the provider '{provider.name}' is to be translated by LiteLLM, which is not installed on "
                "this machine: run 'proctor agents install litellm'"
            )
        folder = tempfile.TemporaryDirectory(prefix="proctor-litellm-")
        place = Path(folder.name)
        (place / "config.yaml").write_text(json.dumps(configuration(provider)))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        key = f"sk-{secrets.token_hex(24)}"
        with (place / "said.txt").open("wb") as said:
            child = await asyncio.create_subprocess_exec(
                *self._argv,
                *("--config", str(place / "config.yaml"), "--host", "127.0.0.1", "--port", str(port)),
                env=self._environment(place, provider, key),
                cwd=place,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=said,
                stderr=asyncio.subprocess.STDOUT,
                preexec_fn=die_with_parent,
            )
        self._running.append((child, folder))
        await _answering(f"http://127.0.0.1:{port}/health/liveliness", child, place / "said.txt", provider)
        return f"http://127.0.0.1:{port}", key

    def _environment(self, place: Path, provider: Provider, key: str) -> Mapping[str, str]:
        trust = {"SSL_CERT_FILE": self._ca_bundle} if self._ca_bundle else {}
        return {
            **host_environment(network=True),
            **trust,
            "HOME": str(place),
            "LITELLM_MASTER_KEY": key,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_LOG": "ERROR",
            "NO_DOCS": "True",
            _KEY: provider.key or "none",
        }


async def _answering(url: str, child: asyncio.subprocess.Process, said: Path, provider: Provider) -> None:
    """Wait until it does; UsageError with its last words when it ends or takes too long."""
    import aiohttp

    problem = f"it did not answer within {START_S:g} s"
    with suppress(TimeoutError):
        async with asyncio.timeout(START_S), aiohttp.ClientSession() as http:
            while child.returncode is None:
                with suppress(aiohttp.ClientError):
                    async with http.get(url) as answer:
                        if answer.status == 200:
                            return
                await asyncio.sleep(0.1)
            problem = f"it ended with {child.returncode}"
    words = provider.without_keys(said.read_bytes()[-_SHOWN:]).decode(errors="replace").strip()
    raise UsageError(
        f"LiteLLM for the provider '{provider.name}' does not start: {problem}. It said: {words}"
    )


async def _end(child: asyncio.subprocess.Process) -> None:
    for stop in (child.terminate, child.kill):
        if child.returncode is not None:
            return
        with suppress(ProcessLookupError):
            stop()
        with suppress(TimeoutError):
            await asyncio.wait_for(child.wait(), _END_S)
