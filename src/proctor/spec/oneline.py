"""A spec from the words of a command line. Pure: it makes the mapping that a file would hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proctor.errors import UsageError
from proctor.model.spec import Spec
from proctor.spec.grammar import safe_name
from proctor.spec.load import from_mapping

GIT_PREFIX = "git+"
"""How the address of a git repository begins where a dataset is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneLine:
    """What the options of one command say; empty means the spec's own default."""

    tasks: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    rollouts: int | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    agent_options: Mapping[str, Any] = field(default_factory=dict)
    pass_env: tuple[str, ...] = ()
    name: str | None = None
    timeout_s: float | None = None


def one_line_spec(
    line: OneLine,
    *,
    base_dir: str,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Spec:
    """The spec that the options mean, read by the same grammar as a file."""
    return from_mapping(spec_mapping(line), base_dir=base_dir, overrides=overrides, environ=environ)


def spec_mapping(line: OneLine) -> dict[str, Any]:
    """The same spec as plain data."""
    sources = [_source(each) for each in line.tasks] + [{"dataset": each} for each in line.datasets]
    said = {
        "name": line.name or _name(sources),
        "timeout_s": line.timeout_s,
        "agent": list(line.agents),
        "model": list(line.models),
        "rollouts": line.rollouts,
        "include": list(line.include),
        "exclude": list(line.exclude),
        "environment_variables": dict(line.environment),
        "pass_env": list(line.pass_env),
        "agent_options": dict(line.agent_options),
    }
    return {**{key: value for key, value in said.items() if value not in (None, [], {})}, "tasks": sources}


def pairs(option: str, values: Sequence[str]) -> dict[str, str]:
    """`KEY=VALUE` of a repeated option; the last one of a key counts."""
    found: dict[str, str] = {}
    for each in values:
        key, equals, value = each.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{option} {key}: expected KEY=VALUE")
        found[key.strip()] = value
    return found


def _source(written: str) -> dict[str, str]:
    if written.startswith(GIT_PREFIX):
        return {"dataset": written}
    return {"zip" if written.lower().endswith(".zip") else "path": written}


def _name(sources: Sequence[Mapping[str, str]]) -> str:
    """A name for the run from what it runs: `config-edit`, `config-edit+2 more`."""
    written = next(iter(sources[0].values()))
    if written.startswith(GIT_PREFIX):
        address, _, inside = written.partition("#")
        written = inside.strip("/") or address.rpartition("/")[2].partition("@")[0].removesuffix(".git")
    last = written.rstrip("/").rpartition("/")[2]
    stem = last[:-4] if last.lower().endswith(".zip") else last
    more = f"+{len(sources) - 1} more" if len(sources) > 1 else ""
    return safe_name(f"{safe_name(stem)[:100]}{more}")
