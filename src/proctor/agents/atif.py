"""Read a trajectory in any version of ATIF, 1.0 to 1.8, whoever wrote it.

What differs between the versions, and what is made of it: text is plain or, since 1.6, a list of parts, of
which images and sounds (1.8) are named; steps that repeat earlier ones to remember them (1.5) are marked and
count in no total; since 1.7 the trajectories of sub-agents may be inside, which follow the step that called
them. Fields that are not known here stay in the document.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_VERSION = re.compile(r"ATIF-v(\d+)\.\d+")
_SOURCES = frozenset({"user", "agent", "system"})
_DEEPEST = 20
"""Sub-agents of sub-agents."""
_TOTALS = {
    "prompt_tokens": "total_prompt_tokens",
    "completion_tokens": "total_completion_tokens",
    "cached_tokens": "total_cached_tokens",
    "cost_usd": "total_cost_usd",
}
"""A step's metric → the same of the whole trajectory."""


class NotATIF(ValueError):  # noqa: N818 - says what the file is not
    """The bytes are no trajectory that can be read here."""


class Call(NamedTuple):
    """A tool call; arguments that are no object are under `arguments`."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step, with all content as text."""

    source: str
    message: str = ""
    reasoning: str = ""
    timestamp: str = ""
    calls: tuple[Call, ...] = ()
    results: tuple[str, ...] = ()
    metrics: Mapping[str, Any] = field(default_factory=dict)
    copied: bool = False
    """It repeats an earlier step so that the agent remembers it."""
    depth: int = 0
    """0: the agent itself; 1: one that it called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A trajectory; `document` is all of it as it was written."""

    version: str
    steps: tuple[Step, ...]
    """Those of sub-agents among them."""
    document: Mapping[str, Any] = field(repr=False)

    @property
    def done(self) -> Iterator[Step]:
        """The steps that really happened: without those that are only remembered."""
        return (step for step in self.steps if not step.copied)

    @property
    def tool_calls(self) -> int:
        """How many tools were called."""
        return sum(len(step.calls) for step in self.done)

    def total(self, metric: str) -> float | None:
        """A metric of the whole: as stated, else the sum over the steps; None where nothing says it."""
        final = self.document.get("final_metrics")
        stated = _amount(final.get(_TOTALS[metric])) if isinstance(final, Mapping) else None
        if stated is not None:
            return stated
        found = [value for step in self.done if (value := _amount(step.metrics.get(metric))) is not None]
        return math.fsum(found) if found else None


def read(data: bytes) -> Recording:
    """The trajectory in these bytes; NotATIF says why there is none."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NotATIF(f"not an ATIF trajectory: not valid JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("steps"), list):
        raise NotATIF("not an ATIF trajectory: it has no list 'steps'")
    version = str(document.get("schema_version") or "")
    if (known := _VERSION.match(version)) and known[1] != "1":
        raise NotATIF(f"{version}: versions 1.0 to 1.8 of ATIF are read")
    try:
        steps = tuple(_steps(document, 0))
    except (KeyError, TypeError, AttributeError) as error:
        raise NotATIF(f"not an ATIF trajectory: {error!r}") from error
    return Recording(version=version, steps=steps, document=document)


def text_of(recording: Recording) -> Iterator[str]:
    """The trajectory for people, a piece per step."""
    for number, step in enumerate(recording.steps, 1):
        who = f"{step.source}{' of a sub-agent' if step.depth else ''}{' (copied)' if step.copied else ''}"
        parts = [f"── {number} {who} {step.timestamp}".rstrip()]
        parts += [f"({step.reasoning.strip()})"] if step.reasoning.strip() else []
        parts += [step.message.strip()] if step.message.strip() else []
        parts += [f"$ {shown(call)}" for call in step.calls]
        parts += [result.rstrip() for result in step.results if result.strip()]
        yield "\n".join(parts) + "\n\n"


def shown(call: Call) -> str:
    """A tool call on a line: the command of a shell, else name and arguments."""
    command = call.arguments.get("command")
    if isinstance(command, str) and len(call.arguments) == 1:
        return command
    return f"{call.name} {json.dumps(call.arguments, ensure_ascii=False)}"


def _steps(document: Mapping[str, Any], depth: int) -> Iterator[Step]:
    """The steps of one trajectory, those of an embedded sub-agent after the step that called it."""
    inside = {
        each["trajectory_id"]: each
        for each in document.get("subagent_trajectories") or ()
        if isinstance(each, Mapping) and isinstance(each.get("trajectory_id"), str)
    }
    for raw in document["steps"]:
        results = (raw.get("observation") or {}).get("results") or ()
        yield _step(raw, results, depth)
        for result in results:
            for ref in result.get("subagent_trajectory_ref") or ():
                called = inside.pop(ref.get("trajectory_id"), None)
                if called is not None and depth < _DEEPEST:
                    yield from _steps(called, depth + 1)


def _step(raw: Mapping[str, Any], results: Sequence[Mapping[str, Any]], depth: int) -> Step:
    source = raw.get("source", "agent")
    if source not in _SOURCES:
        raise TypeError(f"a step has the source {source!r}")
    metrics = raw.get("metrics")
    return Step(
        source=source,
        message=_text(raw.get("message")),
        reasoning=_text(raw.get("reasoning_content")),
        timestamp=str(raw.get("timestamp") or ""),
        calls=tuple(_call(each) for each in raw.get("tool_calls") or ()),
        results=tuple(_text(each.get("content")) for each in results),
        metrics=metrics if isinstance(metrics, Mapping) else {},
        copied=raw.get("is_copied_context") is True,
        depth=depth,
    )


def _call(raw: Mapping[str, Any]) -> Call:
    arguments = raw.get("arguments")
    if not isinstance(arguments, Mapping):
        arguments = {} if arguments is None else {"arguments": arguments}
    return Call(str(raw.get("tool_call_id") or ""), str(raw.get("function_name") or "tool"), arguments)


def _text(content: Any) -> str:
    """Plain text, or the parts of a message; what is not text is named."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(map(_part, content))


def _part(part: Mapping[str, Any]) -> str:
    if isinstance(text := part.get("text"), str):
        return text
    source = part.get("source")
    place = source.get("path") if isinstance(source, Mapping) else None
    return f"[{part.get('type') or 'part'}{f': {place}' if place else ''}]"


def _amount(value: Any) -> float | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
    return value if usable else None
