"""Ask a provider, before anything is spent, whether it answers and knows the models that a run names.

A name that its list has is known without a request to the model. For another name, and where there is no
list, one minimal call decides: many services take names that they do not list.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from proctor.errors import UsageError
from proctor.gateway.apis import Api, said
from proctor.gateway.providers import Provider, Providers
from proctor.outgoing import proxy_for, trusted
from proctor.spec.node import nearest

TRIES = 3
_BUSY = 429
_REFUSED_KEY = (401, 403)
_MOST_BYTES = 64 << 20
_HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": "proctor",
    "anthropic-version": "2023-06-01",
}


class _Answer(NamedTuple):
    status: int
    body: bytes

    def json(self) -> Any:
        """What it says; None where that is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


class _TooLateError(Exception):
    """Whoever is there took longer than it is waited for."""


def check_models(models: Sequence[str], providers: Providers, *, ca_bundle: str = "") -> None:
    """UsageError when a provider of these models does not answer, refuses its key or lacks a model.

    In a thread of its own: the caller may be inside an event loop, in a notebook for example.
    """
    from concurrent.futures import ThreadPoolExecutor

    found: dict[str, tuple[Provider, list[str]]] = {}
    for model in models:
        provider, name = providers.of(model)
        found.setdefault(provider.name, (provider, []))[1].append(name)

    async def ask() -> None:
        for provider, names in found.values():
            await ProviderCheck(provider, ca_bundle=ca_bundle).check(names)

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, ask()).result()


@dataclass(frozen=True, slots=True)
class ProviderCheck:
    """A provider and how long to wait for it."""

    provider: Provider
    ca_bundle: str = ""
    list_timeout_s: float = 5.0
    call_timeout_s: float = 60.0
    """A service may load a model first; one that takes longer than this is alive, and not refused."""
    pause_s: float = 0.5

    async def check(self, models: Sequence[str]) -> None:
        """UsageError when it does not answer, refuses the key, or does not know one of the models."""
        listed = await self._listed()
        for model in models:
            if not any(fnmatchcase(model, name) for name in listed):
                await self._call(model, listed)

    async def _listed(self) -> tuple[str, ...]:
        """The names of its list; none where it offers no list that can be read."""
        try:
            found = (await self._ask("/models", None, self.list_timeout_s)).json()
        except _TooLateError as error:
            raise self._dead(str(error)) from error
        try:
            if "models" in found:
                return tuple(str(each["name"]).removeprefix("models/") for each in found["models"])
            return tuple(str(each["id"]) for each in found["data"])
        except (KeyError, TypeError):
            return ()

    async def _call(self, model: str, listed: Sequence[str]) -> None:
        """One answer of one token, or the service's own reason why there is none."""
        path, question, limit = _question(self.provider, model)
        try:
            answer = await self._ask(path, {**question, **limit}, self.call_timeout_s)
            if answer.status == 400 and any(name in said(answer.body) for name in limit):
                answer = await self._ask(path, question, self.call_timeout_s)
        except _TooLateError:
            return
        if answer.status in {200, _BUSY}:
            return
        if answer.status >= 500:
            raise self._dead(self._said(answer))
        hint = nearest(model, listed) if listed else ""
        raise UsageError(
            f"the model's service at {self.provider.base_url} does not take the model '{model}'"
            f"{hint if 'did you mean' in hint else '.'} It said: {self._said(answer)}. Nothing was started"
        )

    async def _ask(self, path: str, payload: Any, timeout_s: float) -> _Answer:
        """An answer; faults that may pass are given a moment to do so."""
        import aiohttp

        problem = ""
        for attempt in range(TRIES):
            await asyncio.sleep(self.pause_s if attempt else 0)
            try:
                async with asyncio.timeout(timeout_s):
                    answer = await self._exchange(path, payload)
            except TimeoutError:
                raise _TooLateError(f"no answer within {timeout_s:g} s") from None
            except (aiohttp.ClientError, OSError, ValueError) as error:
                problem = str(error) or type(error).__name__
                continue
            if answer.status in _REFUSED_KEY:
                raise self._refused_key(answer)
            if answer.status < 500 or attempt + 1 == TRIES:
                return answer
        raise self._dead(problem)

    async def _exchange(self, path: str, payload: Any) -> _Answer:
        import aiohttp
        from yarl import URL

        url = URL(self.provider.base_url + path)
        headers = {**_HEADERS, **self.provider.headers, **self.provider.credentials()}
        secure = url.scheme == "https"
        connector = aiohttp.TCPConnector(ssl=trusted(self.ca_bundle) if secure else True)
        async with (
            aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session,
            # Redirects are answers like any other: the key is for this host alone.
            session.request(
                "GET" if payload is None else "POST",
                url,
                json=payload,
                headers=headers,
                proxy=proxy_for(url),
                allow_redirects=False,
            ) as response,
        ):
            whole = bytearray()
            async for piece in response.content.iter_any():
                whole += piece
                if len(whole) > _MOST_BYTES:
                    raise ValueError("the answer is too large")
            return _Answer(response.status, bytes(whole))

    def _said(self, answer: _Answer) -> str:
        words = f"status {answer.status}: {said(answer.body)}"
        return words.replace(self.provider.key, "***") if self.provider.key else words

    def _dead(self, problem: str) -> UsageError:
        if self.provider.key:
            problem = problem.replace(self.provider.key, "***")
        where = "PROCTOR_MODEL_BASE_URL" if self.provider.name == "local" else "its base_url"
        return UsageError(
            f"the model's service at {self.provider.base_url} does not answer: {problem}. "
            f"Nothing was started. Start the service, or set {where} to one that runs"
        )

    def _refused_key(self, answer: _Answer) -> UsageError:
        variable = self.provider.key_env or "PROCTOR_MODEL_API_KEY"
        return UsageError(
            f"the model's service at {self.provider.base_url} refused the key: {self._said(answer)}. "
            f"Nothing was started. Set {variable} to a key that it takes"
        )


def _question(provider: Provider, model: str) -> tuple[str, Mapping[str, Any], Mapping[str, Any]]:
    """The least that a model can be asked: path, body, and the limit of the answer, which some refuse."""
    messages = [{"role": "user", "content": "ok"}]
    if Api.CHAT in provider.apis:
        return "/chat/completions", {"model": model, "messages": messages}, {"max_tokens": 1}
    if Api.MESSAGES in provider.apis:
        return "/messages", {"model": model, "messages": messages, "max_tokens": 1}, {}
    if Api.RESPONSES in provider.apis:
        return "/responses", {"model": model, "input": "ok"}, {"max_output_tokens": 16}
    contents = [{"role": "user", "parts": [{"text": "ok"}]}]
    limit = {"generationConfig": {"maxOutputTokens": 1}}
    return f"/models/{model}:generateContent", {"contents": contents}, limit
