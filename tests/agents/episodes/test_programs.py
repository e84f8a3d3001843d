"""The programs of an episode, as they run inside: the line, the agent's side and the environment's."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.trial.episode.stage import AGENT, SOLVE, write_task

from proctor.agents.episodes.inside import agent_program, environment_program
from proctor.agents.episodes.inside.world import NetworkGuard, SandboxViolation, World, normal_path


class Harness:
    """Asks a program that runs in a thread."""

    def __init__(self, program: Any, *arguments: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            self.thread = threading.Thread(target=self._run, args=(program, port, *arguments), daemon=True)
            self.thread.start()
            self.socket = listener.accept()[0]
            self.line = self.socket.makefile("rwb")

    def _run(self, program: Any, *arguments: Any) -> None:
        try:
            program(*arguments)
        except SystemExit as error:
            self.code = error.code

    def ask(self, **question: Any) -> dict[str, Any]:
        self.line.write(json.dumps(question).encode() + b"\n")
        self.line.flush()
        found: dict[str, Any] = json.loads(self.line.readline())
        return found

    def end(self) -> None:
        self.line.close()
        self.socket.close()
        self.thread.join(10)


@pytest.fixture(autouse=True)
def _own_modules() -> Iterator[None]:
    """Programs change the path and the modules of their process, which here is this one."""
    path, modules = list(sys.path), set(sys.modules)
    sys.path.insert(0, "")
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if "proctor_" in name or name.startswith(("vault_", "tasks")):
            del sys.modules[name]


def test_an_agent_is_reset_then_observes_and_acts(tmp_path: Path):
    (tmp_path / "agent.py").write_text(AGENT.format(body=SOLVE))
    harness = Harness(agent_program.main, str(tmp_path))
    assert harness.ask(call="reset", task={"id": "vault"}, env={"PROCTOR_TEST_AGENT": "1"}) == {}
    assert os.environ.pop("PROCTOR_TEST_AGENT") == "1"
    first = harness.ask(call="step", observation={"last_action_result": None})
    assert first == {"action": {"type": "read", "args": {"path": "/vault/note.txt"}}}
    told = harness.ask(call="step", observation={"last_action_result": {"text": "no number"}})
    assert told["error"]["type"] == "ValueError"
    assert "Traceback" in told["error"]["traceback"]
    harness.end()


def test_a_file_without_an_agent_is_told(tmp_path: Path):
    (tmp_path / "none.py").write_text("class Thing: ...")
    harness = Harness(agent_program.main, str(tmp_path / "none.py"))
    told = harness.ask(call="reset", task={}, env={})
    assert "no class with reset, observe and act" in told["error"]["message"]
    harness.end()


def test_the_class_of_an_agent_is_found_by_name_then_by_its_methods():
    methods = {"reset": None, "observe": None, "act": None}
    module = ModuleType("m")
    vars(module).update(B=type("B", (), methods), A=type("A", (), methods), C=object)
    assert agent_program.find_class(module).__name__ == "A"
    vars(module)["ToyAgent"] = type("ToyAgent", (), {})
    assert agent_program.find_class(module).__name__ == "ToyAgent"


def began(tmp_path: Path, **files: str) -> tuple[Harness, dict[str, Any]]:
    write_task(tmp_path / "tasks" / "vault", **files)
    harness = Harness(environment_program.main)
    task = {
        "seed": 7,
        "setup": ["setup.py", "setup"],
        "actions": "actions.py",
        "validator": ["validate.py", "validate"],
        "filesystem_roots": ["/vault"],
        "network_hosts": [],
    }
    return harness, harness.ask(call="setup", root=str(tmp_path), name="vault", task=task)


def test_an_environment_tells_its_actions_executes_them_and_judges(tmp_path: Path):
    harness, ready = began(tmp_path)
    assert ready["actions"] == {
        **{name: [] for name in ("die", "odd", "raise_error", "sleep")},
        "read": ["path"],
        "say": ["code"],
    }
    assert ready["verdict"] == {"ok": False}
    read = harness.ask(call="act", type="read", args={"path": "/vault/note.txt"})
    assert read["result"] == {"ok": True, "text": "the code is 21"}
    assert read["used"] == [{"type": "fs", "op": "read_file", "path": "/vault/note.txt"}]
    assert "violation" in harness.ask(call="act", type="read", args={"path": "/etc/passwd"})
    assert harness.ask(call="act", type="raise_error", args={})["raised"]["type"] == "ValueError"
    assert harness.ask(call="act", type="say", args={"key": 1})["raised"]["type"] == "TypeError"
    assert "('a', 1): nan" in harness.ask(call="act", type="odd", args={})["result"]
    assert harness.ask(call="act", type="say", args={"code": 21})["verdict"] == {"ok": True}
    assert harness.ask(call="verdict")["verdict"] == {"ok": True}
    assert harness.ask(call="act", type="say", args={"code": "break"})["broken"]["type"] == "KeyError"
    harness.end()


@pytest.mark.parametrize(
    ("files", "key", "said"),
    [
        ({"setup": "def setup(seed, env):\n    1 / 0"}, "error", "division by zero"),
        ({"validate": "def validate(env):\n    return 1"}, "broken", "the validator gave 1"),
        ({"validate": "import os\ndef validate(env):\n    os._exit(1)"}, "broken", "ended its process"),
    ],
)
def test_what_breaks_before_the_agent_begins_is_told(
    tmp_path: Path, files: dict[str, str], key: str, said: str
):
    harness, ready = began(tmp_path, **files)
    assert said in ready[key]["message"]
    harness.end()


def test_the_files_of_an_environment_are_only_those_below_its_folders():
    world = World(["/vault/", "box"], [])
    world.write_file("/vault/a/b.txt", "b")
    world.write_file("vault//./c.txt", "c")
    world.write_file("/box", "x")
    assert world.list_dir("/vault") == ["/vault/a", "/vault/c.txt"]
    assert (world.read_file("/vault/c.txt"), world.exists("/vault/a")) == ("c", False)
    world.mark_seen(["/vault/c.txt", "/elsewhere"])
    assert world.visible_state() == {"files_seen": ["/elsewhere", "/vault/c.txt"]}
    for path in ("/vaults/a", "/", "/vault/../etc", ""):
        with pytest.raises(SandboxViolation):
            world.exists(path)
    with pytest.raises(ValueError, match="not empty"):
        normal_path("")
    assert World(["/"], []).exists("/any") is False


def test_hidden_state_and_output_are_kept_apart():
    world = World([], ["api.example"])
    world.set_hidden_state("key", 1)
    world.set_agent_output("key", 2)
    assert (world.get_hidden_state("key"), world.get_agent_output("key")) == (1, 2)
    assert (world.get_hidden_state("none", 3), world.get_agent_output("none", 4)) == (3, 4)
    world.require_network("https://api.example/path")
    assert world.take_used() == [{"type": "net", "host": "api.example"}]
    assert world.network_guard().allowed("api.example")


@pytest.mark.parametrize(
    ("hosts", "asked", "reached"),
    [
        (["a.example"], "A.example.", True),
        (["a.example"], "b.a.example", False),
        (["*.a.example"], "b.a.example", True),
        (["*.a.example"], "a.example", False),
        (["*"], "http://any.example:443/x", True),
        (["*"], "ftp://any.example", False),
        (["*"], "any.example:22", False),
        (["::1"], "[::1]:80", True),
        ([], "a.example", False),
        (["*"], "", False),
    ],
)
def test_hosts_are_matched_by_name_scheme_and_port(hosts: list[str], asked: str, reached: bool):
    guard = NetworkGuard(hosts)
    if reached:
        assert guard.check(asked)
        return
    with pytest.raises(SandboxViolation):
        guard.check(asked)
