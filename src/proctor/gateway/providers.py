"""Where models are: providers by the first part of a model's name, from the `[providers]` table."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from proctor.errors import UsageError
from proctor.gateway.apis import Api
from proctor.gateway.key_filter import REDACTED, KeyFilter
from proctor.settings import Settings

Auth = Literal["bearer", "x-api-key", "x-goog-api-key"]
_FIELDS = (
    "base_url", "key_env", "apis", "auth", "headers", "concurrency", "fields", "translate",
    "translate_key_env",
)  # fmt: skip
LITELLM = "litellm"
MOST_CALLS = 1024
"""Of one model at a time, where nothing else is said: the limit is found by trying, this only bounds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One service of models. Its key is known by the name of an environment variable."""

    name: str
    base_url: str
    """Its address with the version, to which `/chat/completions`, `/messages`, `/models/…` are added."""
    key_env: str = ""
    """The variable with the key; empty: none is needed."""
    key: str = field(default="", repr=False)
    apis: frozenset[Api] = frozenset({Api.CHAT})
    auth: Auth = "bearer"
    headers: Mapping[str, str] = field(default_factory=dict)
    concurrency: int = MOST_CALLS
    """The most calls of one model at a time."""
    fields: tuple[str, ...] = ()
    """Fields of requests that are passed on to it beside those that every provider gets."""
    translate: str = ""
    """What stands between an agent and an API that it does not speak: `litellm`, or the address of one."""
    translate_key_env: str = ""
    translate_key: str = field(default="", repr=False)
    """The key of a LiteLLM that runs already."""
    hidden: tuple[str, ...] = field(default=(), repr=False)
    """Further keys that an answer might quote."""

    def table(self) -> dict[str, Any]:
        """Its table in `[providers]`, without the key."""
        return {name: getattr(self, name) for name in _FIELDS} | {"apis": sorted(self.apis)}

    def credentials(self) -> dict[str, str]:
        """The headers that carry the key."""
        if not self.key:
            return {}
        return {"Authorization": f"Bearer {self.key}"} if self.auth == "bearer" else {self.auth: self.key}

    def lacks(self) -> str:
        """What is missing before it can be called; empty when nothing is."""
        if not self.base_url:
            return "it has no address: set PROCTOR_MODEL_BASE_URL, or base_url in its [providers] table"
        if self.key_env and not self.key:
            return f"its key is not set: put it into the environment variable {self.key_env}"
        if self.translate_key_env and not self.translate_key:
            variable = self.translate_key_env
            return f"the key of its LiteLLM is not set: put it into the environment variable {variable}"
        return ""

    def translates_for(self, agent_apis: Collection[Api]) -> bool:
        """Whether calls of an agent with these APIs are translated: only when it speaks none of ours."""
        return bool(self.translate and not self.apis & set(agent_apis))

    def without_keys(self, body: bytes) -> bytes:
        """What it says of a failure, without its keys, should it quote them."""
        for key in filter(None, (self.key, *self.hidden)):
            body = body.replace(key.encode(), REDACTED)
        return body

    def key_filter(self) -> KeyFilter:
        """For one of its answers."""
        return KeyFilter((self.key, *self.hidden))


_BUILT_IN = (
    Provider(
        name="openrouter",
        base_url="https://openrouter.ai/api/v1",
        key_env="OPENROUTER_API_KEY",
        apis=frozenset({Api.CHAT, Api.RESPONSES, Api.MESSAGES}),
    ),
    Provider(
        name="openai",
        base_url="https://api.openai.com/v1",
        key_env="OPENAI_API_KEY",
        apis=frozenset({Api.CHAT, Api.RESPONSES}),
    ),
    Provider(
        name="anthropic",
        base_url="https://api.anthropic.com/v1",
        key_env="ANTHROPIC_API_KEY",
        apis=frozenset({Api.MESSAGES}),
        auth="x-api-key",
    ),
    Provider(
        name="gemini",
        base_url="https://generativelanguage.googleapis.com/v1beta",
        key_env="GEMINI_API_KEY",
        apis=frozenset({Api.GEMINI}),
        auth="x-goog-api-key",
    ),
)


class Providers:
    """All providers that a model's name can lead to."""

    def __init__(self, providers: Iterable[Provider]) -> None:
        self._by_name = {each.name: each for each in providers}

    @classmethod
    def load(cls, settings: Settings, environ: Mapping[str, str] | None = None) -> Providers:
        """Those that come with Proctor, `local`, and those of the `[providers]` table."""
        environ = os.environ if environ is None else environ
        tables: dict[str, dict[str, Any]] = {each.name: each.table() for each in _BUILT_IN}
        tables["local"] = {"base_url": _without_user(settings.model_base_url), "apis": [Api.CHAT]}
        for name, table in settings.providers.items():
            if not isinstance(table, Mapping):
                raise UsageError(f"[providers]: '{name}' is not a table such as [providers.{name}]")
            tables[name] = {**tables.get(name, {}), **table}
        found = [_provider(name, table, environ) for name, table in tables.items()]
        key = settings.model_api_key
        return cls(
            replace(each, key=key) if each.name == "local" and not each.key_env else each for each in found
        )

    def __iter__(self) -> Iterator[Provider]:
        return iter(self._by_name.values())

    def keys(self) -> dict[str, str]:
        """The keys of all of them under the names of their variables: what no log may have."""
        keys = {each.key_env or f"key of {each.name}": each.key for each in self if each.key}
        return keys | {each.translate_key_env: each.translate_key for each in self if each.translate_key}

    def of(self, model: str) -> tuple[Provider, str]:
        """The provider of a model, and the model's name there. A name without a prefix is `local`'s."""
        prefix, slash, rest = model.partition("/")
        if slash and rest and prefix in self._by_name:
            return self._by_name[prefix], rest
        local = self._by_name.get("local")
        if local is None or not local.base_url:
            known = ", ".join(f"{name}/…" for name in sorted(self._by_name))
            raise UsageError(
                f"the model '{model}' names no provider: known are {known}; for a server of your own set "
                "PROCTOR_MODEL_BASE_URL or add it to the [providers] table"
            )
        return local, model


def check_fit(
    agent_apis: Collection[Api],
    model: str,
    providers: Providers,
    *,
    agent: str = "the agent",
    may_translate: bool = True,
) -> None:
    """UsageError unless an agent that speaks these APIs can use the model, if need be by a LiteLLM."""
    provider, _ = providers.of(model)
    if missing := provider.lacks():
        raise UsageError(
            f"the model '{model}' cannot be used: the provider '{provider.name}' is not ready; {missing}"
        )
    if provider.apis & set(agent_apis) or (may_translate and provider.translate):
        return
    fitting = sorted(f"{each.name}/…" for each in providers if each.apis & set(agent_apis))
    fits = f"models that fit: {', '.join(fitting)}" if fitting else "no provider fits"
    or_so = f'. Or let LiteLLM translate: translate = "litellm" in [providers.{provider.name}]'
    raise UsageError(
        f"{agent} speaks {_words(agent_apis)}, and '{model}' is reached by {_words(provider.apis)}; the "
        f"gateway does not translate. Choose another agent or another model; {fits}"
        f"{or_so if may_translate else ''}"
    )


def _words(apis: Collection[Api]) -> str:
    return " and ".join(sorted(apis)) or "none of the APIs"


def _provider(name: str, table: Mapping[str, Any], environ: Mapping[str, str]) -> Provider:
    where = f"[providers.{name}]"
    for each in table:
        if each not in _FIELDS:
            hint = (
                "; a key does not belong into a file, name its variable with key_env" if each == "key" else ""
            )
            raise UsageError(f"{where}: '{each}' is not known here; known are {', '.join(_FIELDS)}{hint}")
    base_url = str(table.get("base_url") or "").rstrip("/")
    _check_address(where, base_url)
    try:
        apis = frozenset(Api(each) for each in table.get("apis", [Api.CHAT]))
    except ValueError as error:
        raise UsageError(f"{where}: {error}; apis are {', '.join(Api)}") from None
    if table.get("auth", "bearer") not in get_args(Auth):
        raise UsageError(f"{where}: auth is one of {', '.join(get_args(Auth))}")
    headers, concurrency = table.get("headers") or {}, table.get("concurrency", MOST_CALLS)
    if not isinstance(headers, Mapping) or not all(isinstance(each, str) for each in headers.values()):
        raise UsageError(f"{where}: headers is a table of texts")
    if not isinstance(concurrency, int) or concurrency < 1:
        raise UsageError(f"{where}: concurrency is a whole number of at least 1")
    fields = table.get("fields") or ()
    if not isinstance(fields, list | tuple) or not all(isinstance(each, str) for each in fields):
        raise UsageError(f"{where}: fields is a list of names")
    key_env, translate = str(table.get("key_env") or ""), str(table.get("translate") or "").rstrip("/")
    translate_key_env = str(table.get("translate_key_env") or "")
    if translate != LITELLM:
        _check_address(where, translate, "translate")
    if translate_key_env and translate in {"", LITELLM}:
        raise UsageError(f"{where}: translate_key_env is for a LiteLLM that runs: translate is its address")
    return Provider(
        name=name,
        base_url=base_url,
        key_env=key_env,
        key=environ.get(key_env, "") if key_env else "",
        apis=apis,
        auth=table.get("auth", "bearer"),
        headers=dict(headers),
        concurrency=concurrency,
        fields=tuple(fields),
        translate=translate,
        translate_key_env=translate_key_env,
        translate_key=environ.get(translate_key_env, "") if translate_key_env else "",
    )


def _without_user(address: str) -> str:
    """An address without the user and password that it may have: requests carry the key instead."""
    scheme, separator, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"


def _check_address(where: str, address: str, name: str = "base_url") -> None:
    if not address:
        return
    also = f" or {LITELLM}" if name == "translate" else ""
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError as error:
        raise UsageError(f"{where}: {name} is not an address: {error}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UsageError(f"{where}: {name} is not an http(s) address{also}")
    if parts.username or parts.password or parts.query:
        raise UsageError(f"{where}: {name} holds a user, a password or a query; name a key with key_env")
