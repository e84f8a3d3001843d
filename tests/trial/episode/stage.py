"""Small tasks, agents of a few lines, and the harness that plays them in real sandboxes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.resources import Resources

from proctor.runs.perf.run import PerfRequest, run_perf
from proctor.settings import Settings

TOML = """
id = "{name}"
version = 1
description = "Open the vault."
[budgets]
steps = {steps}
tool_calls = {tool_calls}
[sandbox]
filesystem_roots = ["/vault"]
"""
SETUP = """
def setup(seed, env):
    env.write_file("/vault/note.txt", f"the code is {seed * 3}")
    env.set_hidden_state("code", seed * 3)
"""
ACTIONS = """
import os, time
from textwrap import dedent
_ENV = None
def set_env(env):
    global _ENV
    _ENV = env
def read(path):
    return {"ok": True, "text": _ENV.read_file(path)}
def say(code):
    _ENV.set_agent_output("code", code)
    return {"ok": True}
def raise_error():
    raise ValueError("no such thing")
def die():
    os._exit(3)
def sleep():
    time.sleep(600)
def odd():
    return {"ok": True, ("a", 1): float("nan"), "set": {1}}
"""
VALIDATE = """
def validate(env):
    said = env.get_agent_output("code")
    if said == "lost":
        return {"ok": False, "terminal": True, "message": "that code ends it"}
    if said == "break":
        raise KeyError("broken by the agent")
    return {"ok": said == env.get_hidden_state("code")}
"""
AGENT = """
class Agent:
    def reset(self, task_spec):
        self.task = task_spec
    def observe(self, observation):
        self.seen = observation
    def act(self):
{body}
"""
SOLVE = """
        text = (self.seen["last_action_result"] or {}).get("text")
        if text is None:
            return {"type": "read", "args": {"path": "/vault/note.txt"}}
        return {"type": "say", "args": {"code": int(text.split()[-1])}}
"""


def write_task(folder: Path, *, steps: int = 5, tool_calls: int = 4, **files: str) -> Path:
    """A task that is named as its folder; `files` replaces or adds modules."""
    folder.mkdir(parents=True, exist_ok=True)
    usual = {"setup": SETUP, "actions": ACTIONS, "validate": VALIDATE}
    for name, text in {**usual, **files}.items():
        (folder / f"{name}.py").write_text(text)
    text = TOML.format(name=folder.name, steps=steps, tool_calls=tool_calls)
    (folder / "task.toml").write_text(text)
    return folder


class Stage:
    """A folder with tasks and agents that plays rows of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: list[dict[str, Any]] = []

    def add(self, name: str, body: str, *, seed: int = 7, task: str = "vault", **changes: Any) -> None:
        """An agent, a whole file or the body of `act`, on a task that is made if it is not there."""
        if not (self.folder / "tasks" / task).exists():
            write_task(self.folder / "tasks" / task, **changes)
        text = body if "class Agent" in body else AGENT.format(body=body)
        (self.folder / f"{name}.py").write_text(text)
        self.rows.append({"agent": f"{name}.py", "task_ref": f"{task}@1", "seed": seed})

    def play(self, timeout_s: float = 200.0) -> dict[str, list[dict[str, Any]]]:
        """Agent → its rows of the series, in order.

        No episode that ends by itself may meet the limit, however busy the machine: it is part of the trace.
        """
        scenario = self.folder / "scenario.json"
        scenario.write_text(json.dumps(self.rows))
        request = PerfRequest(
            episodes=len(self.rows),
            workers=2,
            timeout_s=timeout_s,
            output_dir=self.folder / "perf",
            sandbox="bubblewrap",
            strict_spec=True,
            scenario=scenario,
        )
        settings = Settings(home=self.folder / ".proctor", rollouts_dir=self.folder / "rollouts")
        result = run_perf(request, Resources(settings))
        assert result.problems == ()
        series = next(path for path in result.files if path.name.startswith("perf-series-"))
        found: dict[str, list[dict[str, Any]]] = {}
        for row in json.loads(series.read_text())["episodes"]:
            found.setdefault(Path(row["agent_options"]["file"]).stem, []).append(row)
        return found
