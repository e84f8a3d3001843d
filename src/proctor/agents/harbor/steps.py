"""What one of Harbor's agents did, from the ATIF file that it leaves."""

from __future__ import annotations

from pathlib import Path

from proctor.agents import atif
from proctor.agents.base import AgentContext
from proctor.disk import read_small

FILE = "agent/trajectory.json"
_MOST_BYTES = 64 << 20
_METRICS = ("prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd")


class Steps:
    """Reads the file once, when the agent has ended in whatever way."""

    def __init__(self, folder: Path, context: AgentContext) -> None:
        self._file, self._context = folder / FILE, context
        self._read = False
        self.count = 0
        """The steps of the agent itself."""

    def read(self) -> None:
        """Add its steps to the attempt's trajectory; those that only repeat earlier ones are left out."""
        if self._read:
            return
        self._read = True
        try:
            recording = atif.read(read_small(self._file, _MOST_BYTES))
        except (OSError, atif.NotATIF):
            return  # it wrote none; the logs tell what it did
        for step in recording.done:
            if step.source == "user" and step.message.strip() == self._context.instruction.strip():
                continue
            self._add(step)

    def _add(self, step: atif.Step) -> None:
        self.count += step.source == "agent"
        calls = [
            {"tool_call_id": each.id, "function_name": each.name, "arguments": dict(each.arguments)}
            for each in step.calls
        ]
        named = [each.id for each in step.calls] if len(step.calls) == len(step.results) else []
        self._context.trajectory.add(
            "agent" if step.source == "agent" else "user" if step.source == "user" else "system",
            step.message,
            tool_calls=calls,
            results=[(named[at] if named else None, text) for at, text in enumerate(step.results)],
            metrics=_metrics(step),
            reasoning=step.reasoning,
            timestamp=step.timestamp,
        )


def _metrics(step: atif.Step) -> dict[str, float]:
    """What can be added up."""
    found = {name: step.metrics.get(name) for name in _METRICS}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    }
