"""The two bodies of a spec, experiments and tasks with their judge, read from nodes into the model."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, cast

from proctor.model.direction import Direction
from proctor.model.secret import is_reference
from proctor.model.spec import Criterion, ExperimentBody, InstrumentSpec, Iterations, JudgeSpec, TaskEntry
from proctor.spec import node as read
from proctor.spec.dialects import SYNONYMS
from proctor.spec.node import Node, plain

EXPERIMENT_DEFAULTS = (
    "strategy",
    "samples",
    "iterations",
    "instrumentation",
    "isolation",
    "loops",
    "gc",
    "python",
    "better",
)
"""Keys of an experiment that may be given once at the top for all experiments of a list."""
EXPERIMENT_KEYS = ("experiment", "params", "sweep", *EXPERIMENT_DEFAULTS)
TASK_SOURCES = ("path", "prepared_dir", "dataset", "zip")
TASK_DEFAULTS = (
    "agent",
    "model",
    "rollouts",
    "include",
    "exclude",
    "agent_options",
    "apply_overrides",
    "overrides",
    "environment_variables",
    "sweep",
    "judge",
)
"""Keys of a task entry that may be given once at the top for all entries."""
TASK_KEYS = (*TASK_SOURCES, *TASK_DEFAULTS)
MOST_VOTES = 99
MOST_RUBRICS = 100
_ID = re.compile(r"[\w.:-]{1,64}")
_RULE = "letters, digits and . _ : -, at most 64"


def experiment_body(body: Node, items: Mapping[str, Node]) -> ExperimentBody:
    """One experiment. `items` are its keys, those given for all experiments among them."""
    if "experiment" not in items:
        raise body.mark.error("'experiment' is missing: name the experiment to measure")
    values = read.each(items, _EXPERIMENT)
    _check_strategy(items)
    return ExperimentBody(**values)


def _check_strategy(items: Mapping[str, Node]) -> None:
    is_random = "strategy" in items and items["strategy"].value == "random"
    if is_random and "samples" not in items:
        raise items["strategy"].place.error("'strategy: random' needs 'samples': how many points to draw")
    if "samples" in items and not is_random:
        raise items["samples"].place.error("'samples' has no effect without 'strategy: random'")


def _axis(item: Node) -> tuple[Any, ...]:
    if not isinstance(item.value, list):
        expected = "a list of values to sweep; one value belongs under 'params'"
        raise item.mark.error(f"expected {expected}, found {read.found(item.value)}")
    if not item.value:
        raise item.mark.error("the list of values to sweep is empty")
    return tuple(plain(each) for each in item.value)


def _params(item: Node) -> dict[str, Any]:
    return {name: plain(value) for name, value in read.mapping(item).items()}


def _sweep(item: Node) -> dict[str, tuple[Any, ...]]:
    return {name: _axis(values) for name, values in read.mapping(item).items()}


def _iterations(item: Node) -> Iterations:
    items = read.fields(item, _ITERATIONS, synonyms=SYNONYMS, what="a number or a mapping")
    iterations = Iterations(**read.each(items, _ITERATIONS))
    if iterations.min_measured > iterations.max_measured:
        bounds = f"{iterations.min_measured} and {iterations.max_measured}"
        raise item.place.error(f"'min_measured' is more than 'max_measured': {bounds}")
    return iterations


def _count_or_auto(item: Node, *, minimum: int) -> int | Literal["auto"]:
    if item.value == "auto":
        return "auto"
    if isinstance(item.value, str):
        raise read.wrong(item, "a whole number or 'auto'")
    return read.whole(item, minimum=minimum)


def _instruments(item: Node) -> tuple[InstrumentSpec, ...]:
    instruments: dict[str, InstrumentSpec] = {}
    for each in read.sequence(item, "a list of instruments"):
        items = dict(read.mapping(each, "an instrument's name, or its name with options"))
        if "name" not in items:
            raise each.mark.error("the instrument has no name; write '{name: psutil, interval_ms: 200}'")
        name = read.text(items.pop("name"), "the name of an instrument")
        if name in instruments:
            raise each.mark.error(f"the instrument '{name}' is listed twice")
        if items.keys() == {"options"} and isinstance(items["options"].value, dict | None):
            items = items["options"].value or {}
        options = {key: plain(option) for key, option in items.items()}
        instruments[name] = InstrumentSpec(name=name, options=options)
    return tuple(instruments.values())


def task_entry(entry: Node, items: Mapping[str, Node]) -> TaskEntry:
    """One `[[tasks]]` table. `items` are its keys, those given for all entries among them."""
    sources = [key for key in TASK_SOURCES if key in items]
    if len(sources) != 1:
        which = f"found {' and '.join(sources)}" if sources else "found none of them"
        place = items[sources[1]].place if sources else entry.mark
        raise place.error(f"a task entry has exactly one of {', '.join(TASK_SOURCES)}; {which}")
    values = read.each(items, _TASK)
    for key, field in (("agent", "agents"), ("model", "models")):
        if key in values:
            values[field] = values.pop(key)
    return TaskEntry(source=cast("Any", sources[0]), path=read.text(items[sources[0]], "a path"), **values)


def texts(item: Node, expected: str) -> tuple[str, ...]:
    """One text or a list of texts."""
    if isinstance(item.value, str):
        return (read.text(item),)
    return tuple(read.text(each) for each in read.sequence(item, expected))


def _some(item: Node, expected: str) -> tuple[str, ...]:
    values = texts(item, expected)
    if not values:
        raise item.mark.error(f"expected {expected}, found an empty list")
    before: set[str] = set()
    for at, value in enumerate(values):
        if value in before:
            raise item.value[at].mark.error(f"'{value}' is listed twice")
        before.add(value)
    return values


def _models(item: Node) -> tuple[str | None, ...]:
    if isinstance(item.value, list):
        if [each.value for each in item.value] == [None]:
            return (None,)
        if any(each.value is None for each in item.value):
            named = Node([each for each in item.value if each.value is not None], item.mark)
            _some(named, "the name of a model or a list of them")
            return tuple(cast("str | None", each.value) for each in item.value)
    return _some(item, "the name of a model or a list of them")


def _overrides(item: Node) -> str | dict[str, Any]:
    if isinstance(item.value, dict):
        return cast("dict[str, Any]", plain(item))
    return read.text(item, "a path or a mapping of overrides")


def _variable(name: str, item: Node) -> str:
    if not name or "=" in name or "\0" in name:
        raise item.place.error(f"'{name}' cannot be the name of an environment variable")
    return name


def _environment(item: Node) -> dict[str, Any]:
    return {_variable(name, value): _setting(value) for name, value in read.mapping(item).items()}


def _environment_sweep(item: Node) -> dict[str, tuple[Any, ...]]:
    return {_variable(name, values): _settings(values) for name, values in read.mapping(item).items()}


def _setting(item: Node) -> str | dict[str, str]:
    if is_reference(found := plain(item)):
        return cast("dict[str, str]", found)
    if isinstance(item.value, list):
        raise item.mark.error("an environment variable has one value; to vary it, put the list under 'sweep'")
    value = read.scalar_text(item)
    if "\0" in value:
        raise item.mark.error("an environment variable cannot hold the character U+0000")
    return value


def _settings(item: Node) -> tuple[Any, ...]:
    values = read.sequence(item, "a list of values to sweep")
    if not values:
        raise item.mark.error("the list of values to sweep is empty")
    return tuple(_setting(each) for each in values)


def judge(item: Node) -> JudgeSpec:
    """A judge: the name of its model, or a mapping."""
    if isinstance(item.value, str):
        return JudgeSpec(model=read.text(item, "the name of a model"))
    items = read.fields(item, JUDGE, what="the name of a model or a mapping")
    if "model" not in items:
        raise item.place.error("'judge' has no 'model': name the model that judges")
    return JudgeSpec(**read.each(items, JUDGE))


def _rubrics(item: Node) -> tuple[Criterion, ...]:
    rows = read.sequence(item, "a list of rubrics: sentences, or mappings with 'id' and 'criterion'")
    if len(rows) > MOST_RUBRICS:
        raise item.mark.error(f"{len(rows)} rubrics are more than {MOST_RUBRICS}")
    found: dict[str, Criterion] = {}
    for number, row in enumerate(rows, 1):
        rubric = _rubric(row, number)
        if rubric.id in found:
            raise row.mark.error(f"the rubric '{rubric.id}' is listed twice")
        found[rubric.id] = rubric
    return tuple(found.values())


def _rubric(row: Node, number: int) -> Criterion:
    if isinstance(row.value, str):
        return Criterion(id=f"rubric-{number}", criterion=read.text(row, "a sentence"))
    items = read.fields(row, RUBRIC, what="a sentence, or a mapping with 'id' and 'criterion'")
    if "criterion" not in items:
        raise row.place.error("the rubric has no 'criterion': say in a sentence what is to be met")
    return Criterion(**{"id": f"rubric-{number}", **read.each(items, RUBRIC)})


def _id(item: Node) -> str:
    name = read.scalar_text(item)
    if not _ID.fullmatch(name):
        raise item.mark.error(f"'{name[:40]}' is not a valid id: use {_RULE}")
    return name


def _better(item: Node) -> dict[str, str]:
    return {
        metric: read.choice(word, options=tuple(Direction)) for metric, word in read.mapping(item).items()
    }


RUBRIC: Mapping[str, Callable[[Node], Any]] = {
    "id": _id,
    "criterion": partial(read.text, expected="a sentence"),
    "weight": partial(read.number, above=0),
}
JUDGE: Mapping[str, Callable[[Node], Any]] = {
    "model": partial(read.text, expected="the name of a model"),
    "rubrics": _rubrics,
    "votes": partial(read.whole, minimum=1, maximum=MOST_VOTES),
    "reward": partial(read.choice, options=("verifier", "judge")),
    "max_bytes": partial(read.whole, minimum=1000, maximum=10_000_000),
    "timeout_s": partial(read.number, above=0),
    "budget_usd": partial(read.number, minimum=0),
    "budget_tokens": read.whole,
    "budget_requests": read.whole,
}
_ITERATIONS: Mapping[str, Callable[[Node], Any]] = {
    "warmup": partial(_count_or_auto, minimum=0),
    "measured": partial(_count_or_auto, minimum=1),
    "max_time_s": partial(read.number, above=0),
    "target_width": partial(read.number, above=0),
    "min_measured": partial(read.whole, minimum=1),
    "max_measured": partial(read.whole, minimum=1),
    "calm": read.flag,
}
_EXPERIMENT: Mapping[str, Callable[[Node], Any]] = {
    "experiment": partial(read.text, expected="the name of an experiment"),
    "params": _params,
    "sweep": _sweep,
    "strategy": partial(read.choice, options=("cartesian", "random")),
    "samples": partial(read.whole, minimum=1),
    "iterations": _iterations,
    "instrumentation": _instruments,
    "isolation": partial(read.choice, options=("process", "none")),
    "loops": partial(_count_or_auto, minimum=1),
    "gc": partial(read.choice, options=("disabled", "enabled")),
    "python": partial(read.text, expected="the path of a Python interpreter"),
    "better": _better,
}
_TASK: Mapping[str, Callable[[Node], Any]] = {
    "include": partial(texts, expected="a glob or a list of globs"),
    "exclude": partial(texts, expected="a glob or a list of globs"),
    "agent": partial(_some, expected="the name of an agent or a list of them"),
    "model": _models,
    "rollouts": partial(read.whole, minimum=1),
    "agent_options": _params,
    "apply_overrides": read.flag,
    "overrides": _overrides,
    "environment_variables": _environment,
    "sweep": _environment_sweep,
    "judge": judge,
}
