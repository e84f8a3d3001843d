"""Ask a model through an OpenAI-compatible endpoint; rate limits and passing faults are waited out.

One answer to one request, bounded in time and size, through the proxies and certificates of this machine.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from proctor.errors import ProviderError
from proctor.outgoing import proxy_for, trusted

if TYPE_CHECKING:
    import aiohttp


_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_SHOWN = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call of the model; `arguments` is JSON as it wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the model said, and what it cost."""

    text: str
    message: Mapping[str, Any]
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Mapping[str, float] = field(default_factory=dict)
    finish_reason: str = ""


class Chat:
    """One endpoint. Never puts its key anywhere but in the header."""

    def __init__(
        self,
        base_url: str,
        key: str,
        *,
        attempts: int = 6,
        timeout_s: float = 600.0,
        backoff_s: float = 1.0,
        max_wait_s: float = 120.0,
        ca_bundle: str = "",
    ) -> None:
        try:
            self._endpoint = Endpoint(f"{base_url.rstrip('/')}/chat/completions", ca_bundle=ca_bundle)
        except HttpError as error:
            raise ProviderError(f"the model's service cannot be reached: {error}") from error
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._attempts = attempts
        self._timeout_s = timeout_s
        self._backoff_s = backoff_s
        self._max_wait_s = max_wait_s

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._endpoint.close()

    async def ask(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        options: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> Reply:
        """The model's reply, or ProviderError once patience is spent or the service says a final no."""
        payload = {"model": model, "messages": list(messages), **(options or {})}
        if tools:
            payload["tools"] = list(tools)
        dice = random.Random(seed)  # noqa: S311 - jitter, not a secret
        problem = ""
        for attempt in range(self._attempts):
            try:
                response = await self._endpoint.post_json(payload, self._headers, timeout_s=self._timeout_s)
            except HttpError as error:
                problem, wait_s = str(error), self._wait_s(attempt, dice, None)
            else:
                if response.status == 200:
                    return _reply(response)
                problem = f"status {response.status}: {refusal(response)}"
                if response.status not in _PASSING:
                    raise ProviderError(f"the model's service refused: {problem}")
                wait_s = self._wait_s(attempt, dice, response)
            if attempt + 1 < self._attempts:
                await asyncio.sleep(wait_s)
        raise ProviderError(
            f"the model's service failed {self._attempts} times; the last error was: {problem}"
        )

    def _wait_s(self, attempt: int, dice: random.Random, response: Response | None) -> float:
        """What the service asks for, else doubling; a little jitter keeps many agents apart."""
        asked = response.headers.get("retry-after", "") if response else ""
        try:
            wait_s = float(asked)
        except ValueError:
            wait_s = self._backoff_s * 2**attempt
        return min(self._max_wait_s, max(0.0, wait_s)) * dice.uniform(1.0, 1.25)


def refusal(response: Response) -> str:
    """Why a service said no, in its own words, cut short."""
    try:
        error = response.json()["error"]
        return str(error["message"] if isinstance(error, dict) else error)[:_SHOWN]
    except (HttpError, KeyError, TypeError):
        return response.body[:_SHOWN].decode(errors="replace")


def _reply(response: Response) -> Reply:
    try:
        body = response.json()
        choice = body["choices"][0]
        message = choice["message"]
        calls = tuple(
            ToolCall(
                id=str(call.get("id", number)),
                name=str(call["function"]["name"]),
                arguments=str(call["function"].get("arguments", "{}")),
            )
            for number, call in enumerate(message.get("tool_calls") or (), 1)
        )
        usage = body.get("usage") or {}
        return Reply(
            text=str(message.get("content") or ""),
            message=message,
            tool_calls=calls,
            usage={
                "prompt_tokens": int(usage.get("prompt_tokens", 0)),
                "completion_tokens": int(usage.get("completion_tokens", 0)),
                "cached_tokens": int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0),
                "cost_usd": float(usage.get("cost") or 0.0),
            },
            finish_reason=str(choice.get("finish_reason") or ""),
        )
    except (HttpError, KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ProviderError(f"the model's service sent an answer that cannot be read: {error!r}") from error


_MAX_BODY = 64 << 20


class HttpError(Exception):
    """The exchange itself failed: no connection, no answer, or one that is not HTTP."""


class NoAnswerInTime(HttpError):  # noqa: N818 - says what happened
    """Whoever is there took longer than the caller waits."""


@dataclass(frozen=True, slots=True)
class Response:
    """A status, headers in lower case, and the body."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Any:
        """The body as JSON; HttpError when it is not."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise HttpError(f"the answer is not JSON: {self.body[:200]!r}") from error


class Endpoint:
    """An address to post to. Connections are kept for the next request: handshakes cost more than turns."""

    def __init__(self, url: str, *, ca_bundle: str = "") -> None:
        try:
            parts = urlsplit(url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError as error:
            raise HttpError(f"{url!r} is not an http(s) address: {error}") from error
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise HttpError(f"{url!r} is not an http(s) address")
        self._where = f"{parts.hostname}:{port}"
        self._url = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()
        self._ca_bundle = ca_bundle
        self._session: aiohttp.ClientSession | None = None
        self._answered = False

    async def post_json(self, payload: Any, headers: Mapping[str, str], *, timeout_s: float) -> Response:
        """One request; HttpError when there is no answer."""
        sent = {"Content-Type": "application/json", **headers}
        return await self._ask("POST", json.dumps(payload).encode(), sent, timeout_s)

    async def get(self, headers: Mapping[str, str], *, timeout_s: float) -> Response:
        """The same without a body."""
        return await self._ask("GET", None, headers, timeout_s)

    async def close(self) -> None:
        """Let go of the connections."""
        session, self._session = self._session, None
        self._answered = False
        if session:
            await session.close()

    async def _ask(
        self, method: str, body: bytes | None, headers: Mapping[str, str], timeout_s: float
    ) -> Response:
        import aiohttp

        try:
            async with asyncio.timeout(timeout_s):
                try:
                    return await self._exchange(method, body, headers)
                except aiohttp.ClientConnectionError as error:
                    if not self._answered or isinstance(error, aiohttp.ClientConnectorError):
                        raise
                # A kept connection that the other side had grown tired of; a new one may do.
                self._answered = False
                return await self._exchange(method, body, headers)
        except TimeoutError as error:
            raise NoAnswerInTime(f"no answer from {self._where} within {timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise HttpError(f"{self._where}: {error or type(error).__name__}") from error

    async def _exchange(self, method: str, body: bytes | None, headers: Mapping[str, str]) -> Response:
        from yarl import URL

        if self._session is None:
            self._session = self._open()
        url = URL(self._url)
        # Redirects are answers like any other: the key is for this host alone.
        request = self._session.request(
            method, url, data=body, headers=headers, proxy=proxy_for(url), allow_redirects=False
        )
        async with request as response:
            whole = bytearray()
            async for piece in response.content.iter_any():
                whole += piece
                if len(whole) > _MAX_BODY:
                    raise ValueError("the answer is too large")
            self._answered = True
            found = {name.lower(): value for name, value in response.headers.items()}
            return Response(response.status, found, bytes(whole))

    def _open(self) -> aiohttp.ClientSession:
        import aiohttp

        secure = self._url.startswith("https:")
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=trusted(self._ca_bundle) if secure else True),
            timeout=aiohttp.ClientTimeout(total=None),
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "proctor"},
            cookie_jar=aiohttp.DummyCookieJar(),
        )
