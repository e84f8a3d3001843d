"""The secrets of a run: which are there, who may use them, and what must never be written down."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from proctor.errors import UsageError
from proctor.gateway.providers import Provider, Providers
from proctor.model.plan import Plan
from proctor.model.secret import (
    LITERAL_PREFIX,
    OWN_PREFIX,
    SHORTEST,
    credentials_in,
    holds_credential,
    how_to_set,
    looks_secret,
    names_of,
    references_in,
)
from proctor.model.spec import Spec
from proctor.settings import SECRET_FIELDS, Settings
from proctor.spec.secrets import concealed
from proctor.trial.redact import Redactor, addresses_in, secrets_in

_MODEL = "MODEL_TOKEN"
_LOCAL_KEY = "PROCTOR_MODEL_API_KEY"
"""The variable of the key that is a setting itself."""


def values_of(spec: Spec, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Where references of a spec are looked up: the environment, and what the spec itself held."""
    return {**environ, **spec.secrets}


def granted(spec: Spec, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that `${VAR}` of a task may use."""
    return {
        name: environ[name] for name in spec.pass_env if name in environ and not name.startswith(OWN_PREFIX)
    }


def known_secrets(spec: Spec, settings: Settings, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Every value that nothing of a run may show, by the name that is shown instead."""
    given = values_of(spec, environ)
    named = {name: given[name] for name, _ in _needed(spec) if name in given}
    return {
        **secrets_in(environ),
        **_keys(settings, environ),
        **_own(settings),
        **_in_addresses(spec),
        **_in_overrides(spec),
        **granted(spec, environ),
        **named,
        **spec.secrets,
    }


def redactor_for(spec: Spec, settings: Settings, environ: Mapping[str, str] = os.environ) -> Redactor:
    """Takes all of those out."""
    return Redactor(known_secrets(spec, settings, environ))


def check_secrets(spec: Spec, settings: Settings, environ: Mapping[str, str] = os.environ) -> None:
    """Refuse a run whose secrets are missing, or that would hand on a credential of Proctor's own."""
    given = values_of(spec, environ)
    # Agents reach these by the gateway, without their keys.
    used = {each.key for each in used_providers(spec, settings, environ) if each.key}
    own = {*_own(settings).values(), *used}
    for name, has_default in _needed(spec):
        if name.startswith(OWN_PREFIX):
            raise UsageError(f"{name} is a setting of Proctor's own, which no spec can use")
        if name not in given and not has_default:
            raise UsageError(f"the spec needs the secret {name}, which is not set: {how_to_set(name)}")
        if given.get(name) in own:
            raise UsageError(_ours("the spec uses", name))
    for name, value in granted(spec, environ).items():
        if value in own:
            raise UsageError(_ours("pass_env grants", name))


def with_advice(plan: Plan, spec: Spec, environ: Mapping[str, str] = os.environ) -> Plan:
    """The plan, with a note for each secret that could be handled better."""
    notes = []
    for name in spec.secrets:
        key = name.removeprefix(LITERAL_PREFIX)
        notes.append(
            f"the spec itself holds the secret '{key.lower()}'; it is not stored, and 'proctor resume' will "
            f"ask for it as {name}; better set it in the environment and write ${{{key}}} in the spec"
        )
    short = [name for name, value in granted(spec, environ).items() if len(value) < SHORTEST]
    short += [name for name, value in spec.secrets.items() if len(value) < SHORTEST]
    notes += [
        f"the value of {name} has fewer than {SHORTEST} characters: it cannot be removed from logs and files"
        for name in short
        if looks_secret(name)
    ]
    return replace(plan, warnings=(*plan.warnings, *notes)) if notes else plan


@dataclass(frozen=True, slots=True)
class Grant:
    """What a server hands to a worker for a run: keys, and where each of them may be sent."""

    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By the names of their variables."""
    providers: Mapping[str, Any] = field(default_factory=dict)
    """Tables of `[providers]`. Who gives a key says its address too: none is sent to another one's."""


def grant_of(spec: Spec, settings: Settings, environ: Mapping[str, str]) -> Grant:
    """The keys and the providers of a spec's models, and of no others."""
    keys: dict[str, str] = {}
    tables: dict[str, Any] = {}
    for each in used_providers(spec, settings, environ):
        key_env = each.key_env or (_LOCAL_KEY if each.key else "")
        tables[each.name] = {**each.table(), "key_env": key_env}
        keys |= {key_env: each.key, each.translate_key_env: each.translate_key}
    return Grant({name: key for name, key in keys.items() if name and key}, tables)


def _needed(spec: Spec) -> Iterator[tuple[str, bool]]:
    for reference in references_in([spec.to_mapping(), *_override_files(spec)]):
        yield from names_of(reference)


def _own(settings: Settings) -> dict[str, str]:
    """What Proctor itself holds: keys, and the passwords in its addresses."""
    found: dict[str, str] = {}
    for name in SECRET_FIELDS:
        value = str(getattr(settings, name))
        found |= addresses_in(name, value) if "://" in value else {name: value} if name != "store" else {}
    for name in ("model_base_url", "dataset_registries", "registry_mirrors"):
        value = getattr(settings, name)
        for each in (value,) if isinstance(value, str) else value:
            found |= addresses_in(name, each)
    return {_MODEL if name == "model_api_key" else name: value for name, value in found.items() if value}


def _keys(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """The keys of providers, except the one that is a setting itself."""
    found = Providers.load(settings, environ).keys()
    return {name: key for name, key in found.items() if key != settings.model_api_key}


def used_providers(spec: Spec, settings: Settings, environ: Mapping[str, str] = os.environ) -> list[Provider]:
    """The providers of the models of a spec's agents and judges."""
    named = [model for each in spec.tasks for model in (*each.models, each.judge and each.judge.model)]
    models = [model for model in named if model]
    providers = Providers.load(settings, environ) if models else Providers(())
    found: dict[str, Provider] = {}
    for model in models:
        with suppress(UsageError):
            provider = providers.of(model)[0]
            found[provider.name] = provider
    return list(found.values())


def _in_addresses(spec: Spec) -> dict[str, str]:
    """The passwords in the addresses of datasets."""
    found: dict[str, str] = {}
    for number, entry in enumerate(spec.tasks):
        if holds_credential(entry.path) or credentials_in(entry.path):
            found |= addresses_in(f"dataset.{number}", entry.path)
    return found


def _in_overrides(spec: Spec) -> dict[str, str]:
    """The secrets in files of overrides that the spec names."""
    found: dict[str, str] = {}
    for overrides in _override_files(spec):
        found |= concealed(overrides)[1]
    return found


def _override_files(spec: Spec) -> Iterator[dict[str, Any]]:
    """What is in the files of overrides that the spec names."""
    for entry in spec.tasks:
        if isinstance(entry.overrides, str) and entry.apply_overrides:
            from proctor.trial.task.prepare import config_overrides

            yield config_overrides(entry, Path(spec.base_dir))[0]


def _ours(who: str, name: str) -> str:
    return (
        f"{who} {name}, which holds a credential of Proctor's own settings; give tasks and agents another one"
    )
