"""The agent's side: loads its file, and calls `reset`, `observe` and `act` when the harness says so."""

from __future__ import annotations

import os
import sys

from .wire import Line, load, told

TYPE_CHECKING = False  # `typing` takes longer to import than the rest of this
if TYPE_CHECKING:
    from typing import Any

    from .wire import Message

_METHODS = ("reset", "observe", "act")


def find_class(module: Any) -> Any:
    """`Agent`, `ToyAgent`, or the first class by name that has the three methods."""
    found = vars(module)
    for name in ("Agent", "ToyAgent"):
        if name in found:
            return found[name]
    for name in sorted(found):
        each = found[name]
        if isinstance(each, type) and all(hasattr(each, method) for method in _METHODS):
            return each
    raise TypeError("no class with reset, observe and act in " + str(module.__file__))


def answer(agent: Any, question: Message) -> Message:
    """What the agent does when it is asked."""
    if question["call"] == "reset":
        agent.reset(question["task"])
        return {}
    agent.observe(question["observation"])
    return {"action": agent.act()}


def main(port: int, path: str) -> None:
    """Serve until the harness ends it, or the agent raises."""
    line = Line(port)
    question = line.receive()
    os.environ.update(question["env"])
    try:
        if os.path.isdir(path):  # noqa: PTH112 - pathlib takes long to import
            path += "/agent.py"
        sys.path[0] = path.rpartition("/")[0]
        agent = find_class(load("proctor_episode_agent", path))()
        while True:
            line.send(answer(agent, question))
            question = line.receive()
    except Exception as error:  # noqa: BLE001 - the agent's own fault, which the harness records
        line.send({"error": told(error)})
