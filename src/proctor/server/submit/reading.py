"""From the body of a request to a spec that may run here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from proctor.errors import NotFoundError
from proctor.model.spec import Spec
from proctor.server.auth.caller import Caller
from proctor.server.problem import Problem
from proctor.server.state import State
from proctor.server.submit.allowed import Origin, refusals, secrets_in
from proctor.server.submit.ceilings import Ceilings
from proctor.server.submit.folders import folder_of
from proctor.spec.grammar import wrong_name
from proctor.spec.load import MAX_SPEC_BYTES, from_mapping
from proctor.spec.node import Node, plain
from proctor.store.service.ownership import DEFAULT
from proctor.store.store import Store

Format = Literal["yaml", "toml", "json"]
MOST_NOTES = 20_000
"""Characters of a run's notes."""
MOST_WORDS = 100
"""Tags of a run."""
MOST_WORD = 200
"""Characters of a tag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What somebody wants to have run."""

    spec: Mapping[str, Any] | str
    format: Format = "yaml"
    name: str | None = None
    tags: tuple[str, ...] | None = None
    notes: str | None = None
    parallel: int | None = None
    changes: Mapping[str, Any] | None = None
    """Values of the spec to change, by their place: `tasks.0.rollouts`."""


@dataclass(frozen=True, slots=True)
class Read:
    """A spec that may run, and what the person wrote."""

    spec: Spec
    written: Mapping[str, Any]


def read(submission: Submission, store: Store, state: State, caller: Caller) -> Read:
    """The spec of a submission; a Problem that names every part of it that is not allowed."""
    written = _written(submission)
    folders: set[str] = set()
    data = _with_folders(written, store, state, caller, folders)
    changes = [f"{key}={_text(value)}" for key, value in (submission.changes or {}).items()]
    origin = Origin(code=caller.may("code"), folders=folders)

    def check(root: Node) -> None:
        _refuse(refusals(root, origin))

    spec = from_mapping(
        data, file="spec", base_dir=_empty_folder(state), overrides=changes, environ={}, check=check
    )
    _refuse(secrets_in(spec))
    _refuse(_long_words(spec))
    _refuse((f"sandbox.{key}", why) for key, why in Ceilings.of(state.settings).exceeded(spec.sandbox))
    given: dict[str, Any] = {
        "name": submission.name,
        "tags": submission.tags,
        "notes": submission.notes,
        "parallel": submission.parallel,
    }
    named = {key: value for key, value in given.items() if value is not None}
    if submission.name is not None and (problem := wrong_name(submission.name)):
        raise Problem("spec_invalid", f"name: {problem}")
    spec = _with_tape(replace(spec, **named), store, caller)
    _check_baseline(spec, store, state, caller)
    return Read(spec, written)


def _empty_folder(state: State) -> str:
    """What paths of a submitted spec are read against. Should one get this far, it finds nothing."""
    folder = state.settings.home.absolute() / "empty"
    folder.mkdir(mode=0o500, parents=True, exist_ok=True)
    return str(folder)


def _refuse(reasons: Iterable[tuple[str, str]]) -> None:
    if errors := [{"where": where, "message": message} for where, message in reasons]:
        raise Problem("spec_forbidden", f"{errors[0]['where']}: {errors[0]['message']}", errors=errors)


def _long_words(spec: Spec) -> Iterator[tuple[str, str]]:
    """What a spec says of its run and every list of runs repeats: bounded as in the requests themselves."""
    if len(spec.notes) > MOST_NOTES:
        yield "notes", f"'notes' has {len(spec.notes):,} characters; at most {MOST_NOTES:,} are allowed"
    for key, words in (("tags", spec.tags), ("labels", spec.labels)):
        if len(words) > MOST_WORDS:
            yield key, f"'{key}' has {len(words):,} entries; at most {MOST_WORDS} are allowed"
        elif any(len(word) > MOST_WORD or not word.isprintable() for word in words):
            yield key, f"'{key}': each is one line of at most {MOST_WORD} characters"


def _written(submission: Submission) -> Mapping[str, Any]:
    if not isinstance(submission.spec, str):
        return submission.spec
    if len(submission.spec.encode()) > MAX_SPEC_BYTES:
        raise Problem("too_large", f"The spec is larger than {MAX_SPEC_BYTES >> 20} MiB")
    from proctor.spec.positions import parse_json, parse_toml
    from proctor.spec.yaml_positions import parse_yaml

    parse = {"yaml": parse_yaml, "toml": parse_toml, "json": parse_json}[submission.format]
    root = parse(submission.spec.replace("\r\n", "\n"), f"spec.{submission.format}")
    data = plain(root) if root is not None else None
    if not isinstance(data, dict):
        raise Problem("spec_invalid", "A spec is a mapping of keys to values")
    return data


def _with_folders(
    written: Mapping[str, Any], store: Store, state: State, caller: Caller, folders: set[str]
) -> dict[str, Any]:
    """The spec with the folders of uploads and stored tasks in place of their names."""
    entries = written.get("tasks")
    if not isinstance(entries, list):
        return dict(written)
    found = []
    for entry in entries:
        if isinstance(entry, Mapping) and isinstance(entry.get("path"), Mapping):
            folder = folder_of(
                entry["path"], store, state.blobs, state.settings.cache_dir.absolute(), caller.project
            )
            folders.add(str(folder))
            found.append({**entry, "path": str(folder)})
        else:
            found.append(entry)
    return {**written, "tasks": found}


def _with_tape(spec: Spec, store: Store, caller: Caller) -> Spec:
    """A tape is a run that the caller may see, never a file."""
    if spec.tape is None:
        return spec
    found = store.service.ownership.find(spec.tape, caller.project)
    if found is None:
        raise NotFoundError(f"the tape '{spec.tape}' is not a run that you may see")
    if Path(found).exists():
        raise Problem("conflict", "A file of the server has the name of this run")
    return replace(spec, tape=found)


def _check_baseline(spec: Spec, store: Store, state: State, caller: Caller) -> None:
    """The baseline that gates name is a run that the caller may see, or one that the server has pinned."""
    if not spec.gates:
        return
    from proctor.verdicts.gate.baselines import read_baselines
    from proctor.verdicts.gate.rules import read_rules

    wanted = read_rules(spec.gates).baseline
    if not wanted or store.service.ownership.find(wanted, caller.project):
        return
    if not caller.sees(DEFAULT) or wanted not in read_baselines(state.settings.baselines):
        raise NotFoundError(f"the baseline '{wanted[:100]}' of the gates is not a run that you may see")


def _text(value: Any) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value)
