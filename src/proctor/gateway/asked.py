"""One request of an agent, with all that is known of it before it is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from yarl import URL

from proctor.gateway.apis import Route
from proctor.gateway.call_options import Wanted
from proctor.gateway.providers import Provider
from proctor.gateway.tokens import Access


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What was asked, by whom, and where it goes."""

    access: Access
    route: Route
    wanted: Wanted
    model: str
    provider: Provider
    provider_model: str
    sent: bytes
    """The body as the agent sent it."""
    body: bytes
    """The body as the provider gets it."""
    query: str
    headers: Mapping[str, str]
    translated: bool = False
    """Whether a LiteLLM stands before the provider."""

    def address(self) -> URL:
        """Where the provider's call goes."""
        base = f"{self.provider.base_url}{self.route.path(self.provider_model)}"
        return URL(f"{base}?{self.query}" if self.query else base, encoded=True)
