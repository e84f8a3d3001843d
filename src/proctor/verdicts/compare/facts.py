"""Which facts must match before two results may be compared, and where each source keeps them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from proctor.model.run import RunInfo
from proctor.runfolder.result import RUN_KEYS, SPEC_KEYS

Facts = Mapping[str, Mapping[str, str]]

MUST_MATCH: dict[str, dict[str, tuple[str, ...]]] = {
    "machine": {
        "host": ("hostname", "host", "node", "machine.hostname", "machine"),
        "cpu": ("cpu_model", "cpu_model_name", "cpu.brand_raw", "cpu.model", "cpu", "processor"),
        "cores": ("cpu_count", "cores", "cpu.count", "num_cpu", "cpu.cores", "logical_cores"),
        "cores allowed": ("cores_allowed",),
        "CPU quota": ("cpu_quota",),
        "memory": ("memory_bytes", "memory_total_bytes", "ram", "memory.total_bytes"),
        "turbo": ("turbo",),
        "smt": ("smt",),
        "governor": ("governor", "cpu_governor", "cpu.governor", "frequency_governor"),
        "container": ("container", "container.kind"),
        "system": ("platform", "os", "system", "kernel"),
    },
    "python": {
        "version": ("python_version", "python.version", "python"),
        "implementation": ("python_implementation", "python.implementation", "implementation"),
        "compiler": ("python_compiler", "python.compiler"),
    },
}
"""Group → fact → the names under which sources keep it, best first. Packages, spec and params come on top."""

_PACKAGES = ("packages", "package_versions", "python.packages", "requirements")
_SHOWN = 6


def gather(environment: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The facts in some tool's description of its environment; what it does not say is absent."""
    flat = dict(_flatten(environment))
    found = {
        group: {
            name: flat[next(path for path in paths if path in flat)]
            for name, paths in names.items()
            if any(path in flat for path in paths)
        }
        for group, names in MUST_MATCH.items()
    }
    for place in _PACKAGES:
        packages = _at(environment, place)
        if isinstance(packages, Mapping):
            found["packages"] = {str(name): str(version) for name, version in packages.items()}
            break
    return {group: facts for group, facts in found.items() if facts}


def run_facts(info: RunInfo) -> dict[str, dict[str, str]]:
    """The facts of a stored run: its environment, how it measured, and which code it measured."""
    found = gather(info.environment)
    resolved = info.resolved
    spec = {name: str(resolved[name]) for name in RUN_KEYS if name in resolved}
    bodies = resolved.get("experiments")
    for body in bodies if isinstance(bodies, list | tuple) else ():
        if isinstance(body, Mapping):
            name = str(body.get("experiment", ""))
            spec |= {f"{name}.{key}": str(body[key]) for key in SPEC_KEYS if key in body}
    found["spec"] = spec
    commit = info.vcs.get("commit")
    if commit:
        dirty = " with local changes" if info.vcs.get("dirty") else ""
        found["code"] = {"commit": f"{str(commit)[:12]}{dirty}"}
    return found


def differences(a: Facts, b: Facts) -> list[str]:
    """One sentence per group in which the two sides differ. Code is meant to differ, and is left out."""
    sentences = []
    for group in ("machine", "python", "packages", "spec"):
        before, after = a.get(group, {}), b.get(group, {})
        if not before and not after:
            continue
        if not before or not after:
            side = "A" if not before else "B"
            sentences.append(f"{group}: {side} has no record of it, so it could not be checked")
            continue
        # A fact that one side lacks was not recorded; a package that one side lacks was not installed.
        names = before.keys() | after.keys() if group == "packages" else before.keys() & after.keys()
        changed = sorted(name for name in names if before.get(name) != after.get(name))
        if changed:
            shown = "; ".join(
                f"{name} {before.get(name, 'absent')} → {after.get(name, 'absent')}"
                for name in changed[:_SHOWN]
            )
            more = f"; and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
            sentences.append(f"{group} differs: {shown}{more}")
    return sentences


def same_machine(a: Facts, b: Facts) -> bool:
    """Whether no machine fact that both sides know differs."""
    before, after = a.get("machine", {}), b.get("machine", {})
    return all(before[name] == after[name] for name in before.keys() & after.keys())


def _flatten(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, item in value.items():
        path = f"{prefix}{name}"
        if isinstance(item, Mapping):
            if prefix.count(".") < 3:
                yield from _flatten(item, f"{path}.")
        elif isinstance(item, str | int | float):
            yield path, str(item)


def _at(value: Mapping[str, Any], path: str) -> Any:
    found: Any = value
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found
