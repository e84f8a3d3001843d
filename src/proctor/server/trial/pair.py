"""Two transcripts side by side: steps paired by what they do, and where the two part. Pure.

A step is what it calls: its commands and files, not its words. Two steps that do the same are paired; what
stands between two pairs on either side is a difference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proctor.agents.atif import Call, Step
from proctor.bounded_diff import BoundedMatcher, Effort

MOST_STEPS = 3_000
"""Steps of each side that are paired; what comes after them is one difference."""
_COMMANDS = ("command", "cmd", "script", "input", "keystrokes", "code")
_PATHS = ("path", "file_path", "filename", "file")
_SHOWN = 80
_SPACES = re.compile(r"\s+")

Deed = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """Steps of both sides that do the same, one for one, or that differ; numbers count from 1."""

    same: bool
    a: tuple[int, int]
    b: tuple[int, int]
    """First step, and how many."""

    def to_mapping(self) -> dict[str, Any]:
        """As the page reads it."""
        sides = {"a": self.a, "b": self.b}
        return {"same": self.same, **{name: {"from": at, "count": n} for name, (at, n) in sides.items()}}


def deed(step: Step) -> Deed:
    """What a step does, without its words: its calls, each with its command or file."""
    if step.source != "agent":
        return (step.source,)
    return tuple(_call(each) for each in step.calls) or ("words",)


def spans(a: Sequence[Step], b: Sequence[Step]) -> list[Span]:
    """The whole of both, in order."""
    left, right = ([deed(each) for each in side[:MOST_STEPS]] for side in (a, b))
    found: list[Span] = []
    at_a = at_b = 0
    blocks = BoundedMatcher(left, right, Effort(), autojunk=False).get_matching_blocks()
    for block in blocks:
        last = block.size == 0
        to_a, to_b = (len(a), len(b)) if last else (block.a, block.b)
        if to_a > at_a or to_b > at_b:
            found.append(Span(False, (at_a + 1, to_a - at_a), (at_b + 1, to_b - at_b)))
        if not last:
            found.append(Span(True, (block.a + 1, block.size), (block.b + 1, block.size)))
        at_a, at_b = to_a + block.size, to_b + block.size
    return found


def sentence(a: Sequence[Step], b: Sequence[Step], found: Sequence[Span], names: tuple[str, str]) -> str:
    """Where they part, and what each does there."""
    first = next((each for each in found if not each.same), None)
    if not a or not b:
        without = [name for name, side in zip(names, (a, b), strict=True) if not side]
        return f"{' and '.join(without)} {'has' if len(without) == 1 else 'have'} no transcript."
    if first is None:
        return f"Both do the same in all {len(a)} steps; their words may differ."
    sides = list(zip(names, (a, b), (first.a, first.b), strict=True))
    there = [(name, _told(side[at - 1])) for name, side, (at, count) in sides if count]
    if len(there) == 1:
        return f"They part at step {max(first.a[0], first.b[0])}: only {there[0][0]} {there[0][1]}."
    return f"They part at step {first.a[0]}: {', '.join(f'{name} {does}' for name, does in there)}."


def _told(step: Step) -> str:
    if step.source != "agent":
        return f"hears from the {step.source}"
    if not step.calls:
        return "only talks"
    what = _what(step.calls[0].arguments)
    shown = what if len(what) <= _SHOWN else f"{what[:_SHOWN]}…"
    return f"does “{shown}”" if shown else f"calls {step.calls[0].name}"


def _call(call: Call) -> str:
    return f"{call.name} {_what(call.arguments)}"


def _what(arguments: Mapping[str, Any]) -> str:
    """The command or the file; without either every argument."""
    for name in (*_COMMANDS, *_PATHS):
        value = arguments.get(name)
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            value = " ".join(value)
        if isinstance(value, str) and value:
            return _SPACES.sub(" ", value).strip()
    return " ".join(f"{name}={value}" for name, value in sorted(arguments.items()))
