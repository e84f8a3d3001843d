"""The environment's side: runs setup, actions and validator of the task. No code of the agent is here."""

from __future__ import annotations

import json
import os
import sys
from types import FunctionType

from .wire import Line, load, told
from .world import SandboxViolation, World

TYPE_CHECKING = False  # `typing` takes longer to import than the rest of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .wire import Message


class Environment:
    """One task with its state."""

    def __init__(self, folder: str, name: str, task: Message) -> None:
        self.world = World(task["filesystem_roots"], task["network_hosts"])
        self.own = (f"{name}_actions", f"tasks.{name}.")
        setup = load(f"{name}_setup", f"{folder}/{task['setup'][0]}")
        self.actions = load(self.own[0], f"{folder}/{task['actions']}")
        judging = load(f"{name}_validate", f"{folder}/{task['validator'][0]}")
        self.validate: Callable[[World], Any] = getattr(judging, task["validator"][1])
        getattr(setup, task["setup"][1])(task["seed"], self.world)
        if hasattr(self.actions, "set_env"):
            self.actions.set_env(self.world)
        self.world.take_used()

    def schema(self) -> dict[str, list[str]]:
        """Each action with the names of its arguments. What the file only imports is no action."""
        return {
            name: _parameters(each)
            for name, each in sorted(vars(self.actions).items())
            if isinstance(each, FunctionType)
            and not name.startswith("_")
            and name != "set_env"
            and (each.__module__ == self.own[0] or each.__module__.startswith(self.own[1]))
        }

    def act(self, name: str, args: Message) -> Message:
        """Execute an action, then judge."""
        try:
            result = getattr(self.actions, name)(**args)
        except SandboxViolation as error:
            return {"violation": str(error), "used": self.world.take_used()}
        except Exception as error:  # noqa: BLE001 - an action that raises ends the episode, not this program
            return {"raised": told(error), "used": self.world.take_used()}
        if name == "list_dir" and isinstance(result, dict) and result.get("ok"):
            self.world.mark_seen(result.get("files", []))
        used = self.world.take_used()
        verdict = self.judge()
        self.world.take_used()
        return {
            "result": _plain(result),
            "used": used,
            "visible_state": self.world.visible_state(),
            **verdict,
        }

    def judge(self) -> Message:
        """What the validator says of the state."""
        try:
            verdict = self.validate(self.world)
        except Exception as error:  # noqa: BLE001 - whose fault that is the harness decides
            return {"broken": told(error)}
        if not isinstance(verdict, dict):
            return {"broken": {"type": "TypeError", "message": f"the validator gave {verdict!r:.200}"}}
        return {"verdict": verdict}

    def judge_apart(self) -> Message:
        """The same in a copy of this process: nothing that the validator does there stays."""
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            try:
                said = json.dumps(self.judge(), default=str).encode()
                with os.fdopen(writer, "wb") as pipe:
                    pipe.write(said)
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
        if not said:
            return {"broken": {"type": "Died", "message": "the validator ended its process"}}
        found: Message = json.loads(said)
        return found


def _plain(result: Any) -> Any:
    """A result that can be sent; one that JSON cannot say at all becomes text."""
    try:
        json.dumps(result, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(result)
    return result


def _parameters(function: Any) -> list[str]:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = function.__code__
    return list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def _begin(question: Message) -> tuple[Environment, Message]:
    folder = f"{question['root']}/tasks/{question['name']}"
    sys.path[0] = question["root"]
    environment = Environment(folder, question["name"], question["task"])
    actions = environment.schema()
    return environment, {
        "actions": actions,
        "visible_state": environment.world.visible_state(),
        **environment.judge_apart(),
    }


def main(port: int) -> None:
    """Set up, then serve until the harness ends it."""
    line = Line(port)
    try:
        environment, ready = _begin(line.receive())
    except Exception as error:  # noqa: BLE001 - the task's own fault, which the harness records
        line.send({"error": told(error)})
        return
    line.send(ready)
    while True:
        question = line.receive()
        if question["call"] == "act":
            line.send(environment.act(question["type"], question["args"]))
        else:
            line.send(environment.judge_apart())
