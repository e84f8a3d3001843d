"""The grammar of a spec: keys shared by both bodies, which body it is, and nothing else.

It reads the one shape that `dialects.modernise` leaves; docs/reference/spec.md and schema.json describe it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from proctor.errors import SpecError
from proctor.model.secret import OWN_PREFIX
from proctor.model.spec import ExperimentBody, Retries, SandboxSpec, Spec, TaskEntry
from proctor.spec import bodies
from proctor.spec import node as read
from proctor.spec.dialects import SYNONYMS
from proctor.spec.node import Node, from_plain, plain

_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
BUDGETS = tuple(f"{of}budget_{unit}" for of in ("", "attempt_") for unit in ("usd", "tokens", "requests"))
"""Keys about what models may cost: of the run, and of each attempt."""
PLACES = (*BUDGETS, "tape", "engine", "sandbox", "sources")
"""Keys whose places errors found after loading point at."""
_LABEL = re.compile(r"[\w.=/:-]{1,63}", re.ASCII)
_NAME = re.compile(r"\w[\w.+@=, -]{0,127}")


def spec(root: Node, *, name: str, base_dir: str, secrets: Mapping[str, str] | None = None) -> Spec:
    """The whole spec. `name` and `base_dir` serve where it does not say."""
    top = read.mapping(root, "a mapping with 'experiment', 'experiments' or 'tasks'")
    given = [key for key in ("experiment", "experiments", "tasks") if _given(top, key)]
    if len(given) > 1:
        place = top[given[1]].place
        raise place.error(f"'{given[0]}' and '{given[1]}' cannot be used together; keep one")
    if not given:
        raise _no_body(root)
    known = {
        "experiment": bodies.EXPERIMENT_KEYS,
        "experiments": ("experiments", *bodies.EXPERIMENT_DEFAULTS),
        "tasks": ("tasks", *bodies.TASK_DEFAULTS),
    }[given[0]]
    items = read.fields(root, (*known, *SHARED_KEYS), synonyms=SYNONYMS)
    places = {key: str(items[key].place) for key in PLACES if key in items}
    values = {"name": name, "base_dir": base_dir, **read.each(items, _SHARED)}
    if given[0] == "tasks":
        values["tasks"] = _tasks(items, places)
    else:
        values["experiments"] = _experiments(root, items, places)
    if values.get("pass_env") and given[0] != "tasks":
        raise items["pass_env"].place.error("'pass_env' is for tasks; experiments see the whole environment")
    return Spec(**values, places=places, secrets=secrets or {})


def _given(top: Mapping[str, Node], key: str) -> bool:
    return key in top and top[key].value is not None


def _no_body(root: Node) -> SpecError:
    for key, item in read.mapping(root).items():
        hint = read.nearest(key, ("experiment", "experiments", "tasks"))
        if "did you mean" in hint:
            return item.place.error(f"'{key}' is not a key here{hint}")
    message = "nothing to measure: the spec has neither 'experiment', 'experiments' nor 'tasks'"
    return root.mark.error(message)


def _experiments(root: Node, items: Mapping[str, Node], places: dict[str, str]) -> tuple[ExperimentBody, ...]:
    if "experiment" in items:
        own = {key: item for key, item in items.items() if key in bodies.EXPERIMENT_KEYS}
        _remember(places, "experiments.0", items["experiment"], own)
        return (bodies.experiment_body(root, own),)
    shared = {key: item for key, item in items.items() if key in bodies.EXPERIMENT_DEFAULTS}
    found = []
    for at, body in enumerate(_listed(items["experiments"], "experiment")):
        own = {**shared, **_fields(body, bodies.EXPERIMENT_KEYS)}
        _remember(places, f"experiments.{at}", body, own)
        found.append(bodies.experiment_body(body, own))
    return tuple(found)


def _tasks(items: Mapping[str, Node], places: dict[str, str]) -> tuple[TaskEntry, ...]:
    shared = {key: item for key, item in items.items() if key in bodies.TASK_DEFAULTS}
    found = []
    for at, entry in enumerate(_listed(items["tasks"], "task entry")):
        own = {**shared, **_fields(entry, bodies.TASK_KEYS)}
        _remember(places, f"tasks.{at}", entry, own)
        found.append(bodies.task_entry(entry, own))
    return tuple(found)


def _listed(item: Node, what: str) -> Iterator[Node]:
    listed = read.sequence(item, f"a list with one mapping for each {what}")
    if not listed:
        raise item.mark.error(f"the list is empty; give at least one {what}")
    yield from listed


def _fields(body: Node, known: tuple[str, ...]) -> dict[str, Node]:
    for key, item in read.mapping(body).items():
        if key in SHARED_KEYS and key not in known:
            raise item.place.error(f"'{key}' belongs at the top of the spec, not here")
    return read.fields(body, known, synonyms=SYNONYMS)


def _remember(places: dict[str, str], path: str, body: Node, items: Mapping[str, Node]) -> None:
    """Keep the places that later stages point at: parameters are checked when the experiment is known."""
    places[path] = str(body.place)
    for key in ("experiment", "params", "sweep"):
        if key in items:
            places[f"{path}.{key}"] = str(items[key].place)
            inner = items[key].value
            for name, item in inner.items() if isinstance(inner, dict) else ():
                places[f"{path}.{key}.{name}"] = str(item.place)


def _gates(item: Node) -> tuple[Any, ...]:
    return tuple(plain(item)) if isinstance(item.value, list) else (plain(item),)


def _name(item: Node) -> str:
    name = read.text(item, "a name")
    if problem := wrong_name(name):
        raise item.mark.error(problem)
    return name


def wrong_name(name: str) -> str:
    """What is wrong with the name of a run; empty when nothing is."""
    if _NAME.fullmatch(name):
        return ""
    rule = "letters, digits, spaces and . + @ = , _ -, at most 128, the first a letter or digit"
    return f"{name[:40]!r} is not a valid name: it becomes a folder name, so use {rule}"


def safe_name(stem: str) -> str:
    """A valid run name made from a file's name."""
    cleaned = re.sub(r"[^\w.+@=, -]", "-", stem).lstrip(".+@=, -")[:128]
    return cleaned or "spec"


def _tags(item: Node) -> tuple[str, ...]:
    if isinstance(item.value, list):
        return tuple(read.scalar_text(each) for each in item.value)
    return (read.scalar_text(item),)


def _labels(item: Node) -> tuple[str, ...]:
    found = bodies.texts(item, "a label of workers or a list of labels")
    for number, label in enumerate(found):
        if problem := wrong_label(label):
            place = item if isinstance(item.value, str) else item.value[number]
            raise place.mark.error(f"'labels': {problem}")
    return tuple(dict.fromkeys(found))


def wrong_label(label: str) -> str:
    """What is wrong with a label of workers; empty when nothing is."""
    if _LABEL.fullmatch(label):
        return ""
    return f"'{label[:40]}' is not a label: letters, digits and . _ - = / :, such as gpu or arch=aarch64"


def granted_names(names: Sequence[str]) -> tuple[str, ...]:
    """The names of `--pass-env`, checked as `pass_env` of a spec is."""
    return _pass_env(from_plain(list(names), path=("--pass-env",)))


def _pass_env(item: Node) -> tuple[str, ...]:
    found = bodies.texts(item, "the name of an environment variable or a list of names")
    for number, name in enumerate(found):
        place = item if isinstance(item.value, str) else item.value[number]
        if not _VARIABLE.fullmatch(name):
            raise place.mark.error(f"'pass_env': '{name[:40]}' is not the name of an environment variable")
        if name.startswith(OWN_PREFIX):
            raise place.mark.error(f"'pass_env': {name} is a setting of Proctor's own, which no task gets")
    return tuple(dict.fromkeys(found))


def _notes(item: Node) -> str:
    if not isinstance(item.value, str):
        raise read.wrong(item, "text")
    return item.value


def _retries(item: Node) -> Retries:
    return Retries(**read.each(read.fields(item, _RETRIES, what="a number or a mapping"), _RETRIES))


def _sandbox(item: Node) -> SandboxSpec:
    items = read.fields(item, _SANDBOX, what="the name of a sandbox or a mapping")
    found = SandboxSpec(**read.each(items, _SANDBOX))
    if found.allowed_hosts and found.network in {"none", "public"}:
        raise items["allowed_hosts"].place.error(
            f"'allowed_hosts' has no effect with 'network: {found.network}'; did you mean 'allowlist'?"
        )
    return found


def _hosts(item: Node, expected: str, wrong: str) -> tuple[str, ...]:
    """Texts, each checked by a function of `model.network`."""
    from proctor.model import network

    check = getattr(network, wrong)
    found = bodies.texts(item, expected)
    for number, each in enumerate(found):
        if problem := check(each):
            place = item if isinstance(item.value, str) else item.value[number]
            raise place.mark.error(problem)
    return found


_RETRIES: Mapping[str, Callable[[Node], Any]] = {
    "infrastructure": partial(read.whole, maximum=1000),
    "provider": partial(read.whole, maximum=1000),
    "backoff_s": partial(read.number, minimum=0),
    "max_backoff_s": partial(read.number, minimum=0),
}
_SANDBOX: Mapping[str, Callable[[Node], Any]] = {
    "backend": partial(read.text, expected="the name of a sandbox"),
    "network": partial(read.choice, options=("none", "public", "allowlist")),
    "allowed_hosts": partial(_hosts, expected="a host or a list of hosts", wrong="wrong_host"),
    "network_allow": partial(
        _hosts, expected="an address, a range or a name, or a list of them", wrong="wrong_allowed"
    ),
    "host_root": read.flag,
    "cpus": partial(read.number, above=0),
    "memory_bytes": partial(read.whole, minimum=1),
    "storage_bytes": partial(read.whole, minimum=1),
    "pids": partial(read.whole, minimum=1),
}
_SHARED: Mapping[str, Callable[[Node], Any]] = {
    "name": _name,
    "seed": read.whole,
    "tags": _tags,
    "notes": _notes,
    "parallel": partial(read.whole, minimum=1, maximum=10_000),
    "output_dir": partial(read.text, expected="a path"),
    "timeout_s": partial(read.number, above=0),
    "retries": _retries,
    "budget_usd": partial(read.number, minimum=0),
    "budget_tokens": read.whole,
    "budget_requests": read.whole,
    "attempt_budget_usd": partial(read.number, minimum=0),
    "attempt_budget_tokens": read.whole,
    "attempt_budget_requests": read.whole,
    "tape": partial(read.text, expected="a file with a tape, or a run"),
    "tape_speed": partial(read.choice, options=("full", "recorded")),
    "engine": partial(read.choice, options=("auto", "local", "celery")),
    "labels": _labels,
    "sandbox": _sandbox,
    "gates": _gates,
    "sources": partial(bodies.texts, expected="a folder or module with experiments, or a list of them"),
    "base_dir": partial(read.text, expected="a path"),
    "pass_env": _pass_env,
}
SHARED_KEYS = (*_SHARED, "$schema")
"""`$schema` is for editors; Proctor ignores it."""


def refuse_unhonoured(spec: Spec) -> None:
    """SpecError for the first key of a spec that would have no effect: refused, never ignored.

    The grammar reads such keys, because stored specs and other documents hold them; a run does not start.
    """
    for key, reason in unhonoured(spec):
        place = spec.place(key)
        raise SpecError(f"{place}: {reason}" if place else reason)


def unhonoured(spec: Spec) -> Iterator[tuple[str, str]]:
    """Keys with no effect, each with a sentence for the person who wrote it."""
    if spec.kind == "experiment":
        for key in (*BUDGETS, "tape"):
            if getattr(spec, key) is not None:
                yield key, f"'{key}' is about the models of agents, and this spec has experiments; remove it"
    if spec.kind == "experiment" and spec.sandbox != SandboxSpec():
        yield "sandbox", "'sandbox' has no effect here: experiments run in processes of their own; remove it"
    if spec.kind == "task" and spec.sources:
        yield "sources", "'sources' and --experiments name experiments, and this spec has tasks; remove them"
