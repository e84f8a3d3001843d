"""The `judge` of a task entry, read from nodes: which model scores, by which rubrics, at what cost."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from proctor.model.spec import Criterion, JudgeSpec
from proctor.spec import node as read
from proctor.spec.node import Node

MOST_VOTES = 99
MOST_RUBRICS = 100
_ID = re.compile(r"[\w.:-]{1,64}")
_RULE = "letters, digits and . _ : -, at most 64"


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
