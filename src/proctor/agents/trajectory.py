"""What an agent did, step by step, in the Agent Trajectory Interchange Format (ATIF)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

SCHEMA_VERSION = "ATIF-v1.4"
_KEEP_TEXT = 200_000
_ENCODER = json.JSONEncoder(ensure_ascii=False)
"""Made once: `json.dumps` with an option makes one per call."""


class Trajectory:
    """Collects steps while the agent works; `to_mapping` is the document."""

    def __init__(
        self,
        *,
        session_id: str,
        agent: str,
        version: str,
        model: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.session_id = session_id
        self.agent = {"name": agent, "version": version, **({"model_name": model} if model else {})}
        self.steps: list[dict[str, Any]] = []
        self.tool_calls = 0
        self.on_step: Callable[[Mapping[str, Any]], None] | None = None
        """Hears of each step as it is added."""
        self._totals: dict[str, float] = {}
        self._clock = clock

    def add(
        self,
        source: Literal["system", "user", "agent"],
        message: str,
        *,
        tool_calls: Sequence[Mapping[str, Any]] = (),
        results: Sequence[tuple[str | None, str]] = (),
        metrics: Mapping[str, float] | None = None,
        reasoning: str = "",
        timestamp: str = "",
    ) -> None:
        """One step. A tool call has `tool_call_id`, `function_name`, `arguments`; results name their call.

        `timestamp` is for steps that are read after they were made; otherwise it is now.
        """
        step: dict[str, Any] = {
            "step_id": len(self.steps) + 1,
            "timestamp": timestamp or datetime.fromtimestamp(self._clock(), UTC).isoformat(),
            "source": source,
            "message": cut(message),
        }
        if reasoning:
            step["reasoning_content"] = cut(reasoning)
        if tool_calls:
            step["tool_calls"] = [dict(call) for call in tool_calls]
        if results:
            step["observation"] = {
                "results": [{"source_call_id": call, "content": cut(text)} for call, text in results]
            }
        if metrics:
            step["metrics"] = dict(metrics)
            for name, value in metrics.items():
                self._totals[name] = self._totals.get(name, 0) + value
        self.steps.append(step)
        self.tool_calls += len(tool_calls)
        if self.on_step:
            self.on_step(step)

    def total(self, metric: str) -> float:
        """The sum of one metric over the steps."""
        return float(self._totals.get(metric, 0))

    def to_mapping(self) -> dict[str, Any]:
        """The whole document."""
        return {
            "schema_version": SCHEMA_VERSION,
            "session_id": self.session_id,
            "agent": self.agent,
            "steps": self.steps,
            "final_metrics": {
                "total_prompt_tokens": int(self.total("prompt_tokens")),
                "total_completion_tokens": int(self.total("completion_tokens")),
                "total_cached_tokens": int(self.total("cached_tokens")),
                "total_cost_usd": self.total("cost_usd"),
                "total_steps": len(self.steps),
            },
        }

    def to_json(self) -> bytes:
        """The document as bytes, a step per line: an indented one takes ten times as long to write."""
        whole = self.to_mapping()
        steps = ",\n  ".join(map(_ENCODER.encode, whole.pop("steps")))
        final = _ENCODER.encode(whole.pop("final_metrics"))
        head = _ENCODER.encode(whole)[:-1]
        text = f'{head},\n "steps": [\n  {steps}\n ],\n "final_metrics": {final}}}\n'
        return text.encode(errors="replace")


def cut(text: str, limit: int = _KEEP_TEXT) -> str:
    """The beginning and the end; the middle of a long text rarely says more."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n… {len(text) - limit} characters left out …\n{text[-half:]}"
