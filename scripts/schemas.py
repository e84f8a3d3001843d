"""The published JSON Schemas of records, made from the types that read and write them.

What a document always has is required, what it may lack has a default, and nothing else is allowed in it.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import fields

from proctor.model.canonical import Count, Number
from proctor.model.outcome import Blame, Outcome
from proctor.model.plan import PlannedTrial
from proctor.model.record import LATER_FIELDS, Artifact, AttemptRecord, Failure
from proctor.model.run import RunInfo

DRAFT = "https://json-schema.org/draft/2020-12/schema"
RUN_FIELDS = (
    "seed",
    "created_at",
    "started_at",
    "finished_at",
    "total",
    "done",
    "tags",
    "notes",
    "plan_digest",
)
TRIAL_FIELDS = ("seed", "key", "index")
RESULT_FIELDS = ("outcome", "reward", "started_at", "ended_at", "phases_s", "metrics", "ledger", "usage")
USAGE = ("prompt_tokens", "completion_tokens", "cost_usd", "requests", "steps", "tool_calls")
Version = Literal[1]
Kind = Literal["experiment", "task"]
Field = tuple[str, Any] | tuple[str, Any, Any]


class Image(Struct):
    """What a rollout's sandbox was made from."""

    name: str | UnsetType = UNSET
    """The image's name, empty for a root that was built here or for the host's own system."""
    digest: str | UnsetType = UNSET
    """What the name meant when the root was made."""
    host: bool | UnsetType = UNSET
    """Whether the root is this machine's own system."""
    root: str | UnsetType = UNSET
    """The digest of the root itself."""


class SystemChanges(Struct):
    """What the agent changed outside its own folders."""

    count: int | UnsetType | None = UNSET
    """How many system files; null when there were too many to look at."""
    first: list[str] | UnsetType = UNSET
    """The first of them, each as 'changed /path', 'added /path' or 'removed /path'."""
    judged_again: dict[str, Any] | UnsetType = UNSET
    """A pass that was judged a second time: the files that were put back or left out, both rewards, and why
    it is suspect."""


class Vcs(Struct):
    """What was checked out."""

    commit: str | None
    branch: str | None
    dirty: bool | None


def published(name: str, *parts: Field) -> type[Struct]:
    """A type with these fields and no others."""
    return msgspec.defstruct(name, parts, kw_only=True, forbid_unknown_fields=True)


def taken(model: type[Struct], *names: str) -> list[Field]:
    """Fields of a type of ours, with what its source says of each; all of them without names."""
    told = _told(model)
    found = {each.name: each.type for each in fields(model)}
    return [(name, _described(_closed(found[name]), told.get(name, ""))) for name in names or found]


def _closed(kind: Any) -> Any:
    """The same type, of records whose fields are all there and no others."""
    if kind == tuple[Artifact, ...]:
        return tuple[FILE, ...]
    return FAILURE | None if kind == Failure | None else kind


def _described(kind: Any, text: str) -> Any:
    return Annotated[kind, Meta(description=text)] if text else kind


def _told(model: type) -> dict[str, str]:
    """The documentation of each attribute, which stands below it."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    pairs = zip(tree.body, tree.body[1:], strict=False)  # type: ignore[attr-defined]
    return {
        field.target.id: " ".join(doc.value.value.split())
        for field, doc in pairs
        if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr)
    }


FAILURE = published("Failure", *taken(Failure))
FILE = published("Artifact", *taken(Artifact))
TRIAL = published("PlannedTrial", *taken(PlannedTrial))
LATER: list[Field] = [
    ("image", _described(Image | UnsetType, "Rollouts: what the sandbox's root was made from."), UNSET),
    ("system_changes", _described(SystemChanges | UnsetType, "Rollouts: absent when nothing."), UNSET),
    ("suspect", _described(bool | UnsetType, _told(AttemptRecord)["suspect"]), UNSET),
]


def series() -> type[Struct]:
    """One line of `series.jsonl`."""
    attempt = [each for each in taken(AttemptRecord) if each[0] not in (*LATER_FIELDS, "key")]
    head: list[Field] = [("schema_version", Version), ("run_id", str)]
    tail: list[Field] = [("blame", Blame), ("counts", bool)]
    return published("Line", *head, *taken(PlannedTrial), *attempt, *tail, *LATER)


def result() -> type[Struct]:
    """One trial's `result.json`."""
    file = published("ResultFile", *taken(Artifact), ("path", str))
    options = dict[str, str]
    own: list[Field] = [
        ("schema_version", Version), ("name", str), ("run_id", str), ("status", Literal["success", "failed"]),
        ("blame", Blame), ("parameters", dict[str, Any]), ("attempt", Count), ("iterations", Count),
        ("iteration_metrics", list[dict[str, Any]]), ("error", FAILURE | None), ("warnings", list[str]),
        ("artifacts", list[file]), ("agent", str | None), ("model", str | None), ("tags", list[str]),
        ("notes", str), ("spec", dict[str, Any]), ("vcs", Vcs), ("environment", dict[str, Any]),
        ("experiment", str | UnsetType, UNSET), ("task", str | UnsetType, UNSET),
        ("agent_options", options | UnsetType, UNSET),
    ]  # fmt: skip
    taken_over = [*taken(PlannedTrial, *TRIAL_FIELDS), *taken(AttemptRecord, *RESULT_FIELDS)]
    return published("RunResult", *own, *taken_over, *LATER)


def manifest() -> type[Struct]:
    """`manifest.json`, with what rollouts add to it."""
    ways = Literal["regrade", "vet", "perf", "race", "judge", "experiment", "task"]
    said = [("execution", _described(ways | UnsetType,
             "How its trials are executed, where that is not its kind."), UNSET)]  # fmt: skip
    run = published(
        "Run", ("kind", Kind), ("counts", dict[str, Count]), *said,
        *taken(RunInfo, "id", "name", "status", *RUN_FIELDS),
    )  # fmt: skip
    plan = published(
        "Plan", ("digest", str), ("total", Count), ("warnings", list[str]), ("trials", list[TRIAL])
    )
    rollouts: list[Field] = [
        ("config", dict[str, Any] | UnsetType, UNSET), ("name", str | UnsetType, UNSET),
        ("created_at", Annotated[str, Meta(extra_json_schema={"format": "date-time"})] | UnsetType, UNSET),
        ("results", list[rollout()] | UnsetType, UNSET),
    ]  # fmt: skip
    return published(
        "Manifest", ("schema_version", Version), ("run", run), ("versions", dict[str, str]),
        *taken(RunInfo, "vcs", "environment", "spec", "resolved"), ("plan", plan), *rollouts,
    )  # fmt: skip


def rollout() -> type[Struct]:
    """One of the `results` of a rollout manifest."""
    status = Literal["pending", *(each.value for each in Outcome)]  # type: ignore[valid-type]
    optional = [(name, Number | None) for name in ("reward", "started_at", "duration_s", *USAGE)]
    return published(
        "Rollout", ("task_dir", str), ("run_id", str), ("run_dir", str), ("model", str | None),
        ("agent", str | None), ("status", status), ("launch_rc", int | None), ("task", str),
        ("rollout", Count), ("index", Count), ("key", str), ("environment_variables", dict[str, str]),
        ("blame", Blame | None), ("attempts", Count), ("failure", FAILURE | None), *optional,
        ("agent_options", dict[str, str] | UnsetType, UNSET),
    )  # fmt: skip


TITLES = {
    "series": (
        "A line of series.jsonl",
        "One attempt: the planned trial's fields, the attempt's, and whether it is the one that counts.",
    ),
    "result": ("RunResult: trials/<subject>/<index>/result.json", "One trial's result, complete in itself."),
    "manifest": (
        "manifest.json",
        "What was planned. Written when the run begins; a task run adds its results when it ends.",
    ),
}
NAMES = tuple(TITLES)


def schema(name: str) -> str:
    """The published schema of one document, as text."""
    made = {"series": series, "result": result, "manifest": manifest}[name]()
    found = msgspec.json.schema(made)
    known = found.pop("$defs")
    whole = known.pop(made.__name__)
    title, description = TITLES[name]
    head = {"$schema": DRAFT, "$id": f"proctor/{name}/1", "title": title, "description": description}
    rest = {key: value for key, value in whole.items() if key != "title"}
    document = _plain({**head, **rest, "$defs": dict(sorted(known.items()))})
    return json.dumps(document, indent=2) + "\n"


def _plain(value: Any) -> Any:
    """Shorter where it says the same: a whole number or a number is a number; something or null is a type."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {name: _plain(each) for name, each in value.items()}
    options = found.get("anyOf", [])
    if {"type": "number"} in options:
        options = [each for each in options if each != {"type": "integer"}]
    if options and all(set(each) == {"type"} for each in options):
        del found["anyOf"]
        types = [each["type"] for each in options]
        found["type"] = types if len(types) > 1 else types[0]
    return found
