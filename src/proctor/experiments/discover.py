"""Find experiments: built in, in folders, files and modules, and behind entry points.

A module that fails to import is reported with the line that failed; everything else is still found.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proctor.errors import NotFoundError, UsageError
from proctor.experiments.base import REGISTRY, Registered, same_class
from proctor.experiments.describe import parameters
from proctor.experiments.load import (
    Loaded,
    load_entry_points,
    load_file,
    load_folder,
    load_module,
    load_module_below,
    module_exists,
)
from proctor.settings import load_settings

BUILT_IN = "proctor.experiments"
PACKED = "packed:"
"""Begins a source that was stored with a run: a folder, a file, or `FOLDER::MODULE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A module that could not be imported, and why."""

    source: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """What was found, and what was in the way."""

    experiments: Mapping[str, Registered]
    broken: tuple[Broken, ...] = ()
    twice: Mapping[str, str] = field(default_factory=dict)
    """Slug → the two places at which it is registered; which one is meant cannot be told."""


def discover(sources: Sequence[str] = ()) -> Discovery:
    """All experiments: the built-in ones, entry points, the settings' folders, then `sources`.

    A source is a folder, a `.py` file or a dotted module. A source that does not exist is an error.
    """
    found: dict[str, Registered] = {}
    broken: list[Broken] = []
    twice: dict[str, str] = {}
    for loaded in _load_all(sources):
        if loaded.error:
            broken.append(Broken(source=loaded.source, error=loaded.error))
        for entry in loaded.registered:
            other = found.get(entry.slug)
            if other and is_built_in(other) and not is_built_in(entry):
                other = None
                del found[entry.slug]  # also when the user's own turns out to be broken
            problem = _problem(entry, other)
            if problem:
                broken.append(Broken(source=loaded.source, error=problem))
                if other and not same_class(other, entry):
                    twice[entry.slug] = problem
            elif other is None:
                found[entry.slug] = entry
    REGISTRY.update(found)
    experiments = dict(sorted(found.items()))
    return Discovery(experiments=experiments, broken=tuple(broken), twice=twice)


def is_built_in(entry: Registered) -> bool:
    """Whether an experiment comes with Proctor."""
    return entry.cls.__module__.startswith(f"{BUILT_IN}.")


def find(slug: str, sources: Sequence[str] = ()) -> Registered:
    """The experiment of that name, or NotFoundError with the nearest names and what is broken."""
    discovery = discover(sources)
    if slug in discovery.twice:
        raise UsageError(f"{discovery.twice[slug]}; rename one of them, or leave out one of the folders")
    if slug in discovery.experiments:
        return discovery.experiments[slug]
    from difflib import get_close_matches

    near = get_close_matches(slug, discovery.experiments, 3)
    hint = f"did you mean {_or(near)}?" if near else "see 'proctor list'"
    message = f"no experiment named '{slug}'; {hint}"
    if not near and not sources:
        message += "; name a folder of your own with --experiments"
    for each in discovery.broken:
        message += f"\n  not loaded: {each.error}"
    raise NotFoundError(message)


def shadowed(entry: Registered) -> tuple[str, ...]:
    """A note when a person's own experiment has the name of a built-in one."""
    if is_built_in(entry) or not any(
        each.slug == entry.slug and is_built_in(each)
        for loaded in load_module(BUILT_IN)
        for each in loaded.registered
    ):
        return ()
    return (f"'{entry.slug}' is your own experiment at {entry.place}; the built-in one is not used",)


def _load_all(sources: Sequence[str]) -> Iterator[Loaded]:
    yield from load_module(BUILT_IN)
    yield from load_entry_points("proctor.experiments")
    # A run that brings its sources has those of its settings among them, as they were.
    brought = any(source.startswith(PACKED) for source in sources)
    for source in () if brought else filter(None, load_settings().experiments.split(os.pathsep)):
        try:
            yield from _load(source)
        except NotFoundError as error:
            yield Loaded(source=source, error=f"setting 'experiments': {error}")
    for source in sources:
        yield from _load(source)


def _load(source: str) -> Iterator[Loaded]:
    source, _, module = source.removeprefix(PACKED).partition("::")
    path = Path(source).expanduser()
    if module:
        yield from load_module_below(source, module)
        return
    if path.is_dir():
        yield from load_folder(path)
    elif path.is_file():
        yield load_file(path)
    elif not all(map(str.isidentifier, source.split("."))) or not module_exists(source):
        raise NotFoundError(f"{source}: no such folder, file or module")
    else:
        yield from load_module(source)


def _problem(entry: Registered, other: Registered | None) -> str:
    """Why this entry cannot be listed, or nothing."""
    if other and not same_class(other, entry):
        return f"experiment '{entry.slug}' is registered twice: at {other.place} and at {entry.place}"
    try:
        parameters(entry)
    except UsageError as error:
        return str(error)
    return ""


def _or(names: Sequence[str]) -> str:
    return " or ".join(f"'{name}'" for name in names)
