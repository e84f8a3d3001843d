"""What an attempt used: the agent's own word first, and its trajectory where the agent says nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableSequence
from typing import Any

from proctor.agents.trajectory import Trajectory


def added(
    so_far: Mapping[str, Any], reported: Mapping[str, Any], notes: MutableSequence[str]
) -> dict[str, Any]:
    """The usage of several legs together. What is not a finite amount is left out and noted."""
    total = dict(so_far)
    for name, value in reported.items():
        if value is None:
            continue  # an agent that does not know
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            notes.append(
                f"the agent reported usage['{name}'] = {value!r:.60}, which is not an amount; left out"
            )
        else:
            total[str(name)] = total.get(str(name), 0) + value
    return total


def usage_of(reported: Mapping[str, Any], trajectory: Trajectory) -> dict[str, Any]:
    """What the agent reported stays; what it did not report is counted in its trajectory."""
    counted = {
        "prompt_tokens": int(trajectory.total("prompt_tokens")),
        "completion_tokens": int(trajectory.total("completion_tokens")),
        "cost_usd": trajectory.total("cost_usd"),
        "tool_calls": trajectory.tool_calls,
    }
    return {**counted, **reported}
