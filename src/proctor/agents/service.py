"""Ask a model's service, before anything is spent, whether it answers and knows the models that a run names.

A name that its list has is known without a request to the model. For another name, and where there is no
list, one minimal call decides: many services take names that they do not list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

from proctor.agents.chat import Endpoint, HttpError, NoAnswerInTime, Response, refusal
from proctor.errors import UsageError
from proctor.spec.node import nearest

TRIES = 3
_BUSY = 429
_REFUSED_KEY = (401, 403)
_QUESTION = [{"role": "user", "content": "ok"}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A model's service and how long to wait for it."""

    base_url: str
    key: str = ""
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

    @property
    def shown(self) -> str:
        """Its address without what may be secret: a user, a password, a query."""
        try:
            parts = urlsplit(self.base_url)
        except ValueError:
            return "the given address"
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    async def _listed(self) -> tuple[str, ...]:
        """The names of its list; none where it offers no list that can be read."""
        try:
            response = await self._ask("/models", None, self.list_timeout_s)
        except NoAnswerInTime as error:
            raise self._dead(str(error)) from error
        try:
            return tuple(str(each["id"]) for each in response.json()["data"])
        except (HttpError, KeyError, TypeError):
            return ()

    async def _call(self, model: str, listed: Sequence[str]) -> None:
        """One answer of one token, or the service's own reason why there is none."""
        question = {"model": model, "messages": _QUESTION}
        try:
            response = await self._ask(
                "/chat/completions", {**question, "max_tokens": 1}, self.call_timeout_s
            )
            if response.status == 400 and "max_tokens" in refusal(response):
                response = await self._ask("/chat/completions", question, self.call_timeout_s)
        except NoAnswerInTime:
            return
        if response.status in {200, _BUSY}:
            return
        if response.status >= 500:
            raise self._dead(self._said(response))
        hint = nearest(model, listed) if listed else ""
        raise UsageError(
            f"the model's service at {self.shown} does not take the model '{model}'"
            f"{hint if 'did you mean' in hint else '.'} It said: {self._said(response)}. Nothing was started"
        )

    async def _ask(self, path: str, payload: Any, timeout_s: float) -> Response:
        """An answer; faults that may pass are given a moment to do so."""
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        try:
            endpoint = Endpoint(self.base_url.rstrip("/") + path, ca_bundle=self.ca_bundle)
        except HttpError as error:
            message = f"{self.shown} is not an http(s) address; set PROCTOR_MODEL_BASE_URL to one"
            raise UsageError(message) from error
        problem = ""
        for attempt in range(TRIES):
            await asyncio.sleep(self.pause_s if attempt else 0)
            try:
                if payload is None:
                    response = await endpoint.get(headers, timeout_s=timeout_s)
                else:
                    response = await endpoint.post_json(payload, headers, timeout_s=timeout_s)
            except NoAnswerInTime:
                raise
            except HttpError as error:
                problem = str(error)
                continue
            finally:
                await endpoint.close()
            if response.status in _REFUSED_KEY:
                raise self._refused_key(response)
            if response.status < 500 or attempt + 1 == TRIES:
                return response
        raise self._dead(problem)

    def _said(self, response: Response) -> str:
        words = f"status {response.status}: {refusal(response)}"
        return words.replace(self.key, "***") if self.key else words

    def _dead(self, problem: str) -> UsageError:
        return UsageError(
            f"the model's service at {self.shown} does not answer: {problem}. Nothing was started. "
            "Start the service, or set PROCTOR_MODEL_BASE_URL to one that runs"
        )

    def _refused_key(self, response: Response) -> UsageError:
        return UsageError(
            f"the model's service at {self.shown} refused the key: {self._said(response)}. "
            "Nothing was started. Set PROCTOR_MODEL_API_KEY to a key that it takes"
        )
