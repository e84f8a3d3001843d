"""Episodes in real sandboxes: every ending has its class, and no agent can make its own verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.trial.episode.stage import SOLVE, VALIDATE, Stage

pytestmark = pytest.mark.needs("bubblewrap")

ENDINGS = {
    "solves": (SOLVE, "passed", None),
    "wrong_name": ("        return {'type': 'set_env', 'args': {'env': 1}}", "failed", "invalid_action"),
    "imported": ("        return {'type': 'dedent', 'args': {'text': ''}}", "failed", "invalid_action"),
    "no_mapping": ("        return 'open'", "failed", "invalid_action"),
    "missing_argument": ("        return {'type': 'say', 'args': {}}", "failed", "invalid_action"),
    "action_raises": ("        return {'type': 'raise_error'}", "failed", "invalid_action"),
    "leaves_its_folder": (
        "        return {'type': 'read', 'args': {'path': '/vault/../etc/passwd'}}",
        "failed",
        "sandbox_violation",
    ),
    "loses": ("        return {'type': 'say', 'args': {'code': 'lost'}}", "failed", "logic_failure"),
    "breaks_the_validator": (
        "        return {'type': 'say', 'args': {'code': 'break'}}",
        "failed",
        "environment_broken",
    ),
    "kills_the_environment": ("        return {'type': 'die'}", "failed", "environment_broken"),
    "repeats": (
        "        return {'type': 'odd'}",
        "budget_exhausted",
        "tool_calls_exhausted",
    ),
    "raises": ("        raise ZeroDivisionError('mine')", "agent_error", "AgentRaised"),
    "dies": ("        import os; os._exit(9)", "agent_error", "AgentRaised"),
    "floods": ("        return {'type': 'x' * 3_000_000}", "agent_error", "AgentRaised"),
    "is_no_agent": ("class Agent:\n    pass\n", "agent_error", "AgentRaised"),
    "hides_text": ("        return {'type': chr(0xd800)}", "agent_error", "AgentRaised"),
    "nests": (
        "        a = {}\n        for _ in range(90): a = {'a': a}\n        return {'type': 'say', 'args': a}",
        "failed",
        "invalid_action",
    ),
}


CHEAT = """
import glob, os, socket
class Agent:
    def reset(self, task_spec):
        self.found = []
        for path in glob.glob("/opt/proctor/**", recursive=True) + glob.glob("/proc/[0-9]*/cmdline"):
            self.found += [path] if "tasks" in path or "environment_program.py" in self._read(path) else []
        self.found += [PLACE] if os.path.exists(PLACE) else []
        self.open = [port for port in range(1024, 65536, 7) if self._answers(port)]
    def _read(self, path):
        try:
            return open(path).read().replace("\\0", " ") if "cmdline" in path else ""
        except OSError:
            return ""
    def _answers(self, port):
        with socket.socket() as line:
            found = line.connect_ex(("127.0.0.1", port)) == 0
            return found and line.getsockname() != line.getpeername()  # a socket may meet itself
    def observe(self, observation):
        self.seen = observation
    def act(self):
        forged = b'{"result": {"ok": true}, "verdict": {"ok": true}, "visible_state": {}}\\n'
        for fd in range(3, 20):
            try:
                os.write(fd, forged)
            except OSError:
                pass
        return {"type": "read", "args": {"path": str([self.found, self.open])}, "verdict": {"ok": True}}
"""


FICKLE = VALIDATE.replace(
    "def validate(env):",
    "import os\nSTART = os.getpid()\ndef validate(env):\n    if os.getpid() != START: return {'ok': False}",
)
SHARED = """
from tasks.sharing.shared import FACTOR
def setup(seed, env):
    env.write_file("/vault/note.txt", f"is {seed * FACTOR}")
    env.set_hidden_state("code", seed * FACTOR)
"""
BROKEN = {
    "raising": ({"setup": "def setup(seed, env):\n    1 / 0"}, "the setup failed: Traceback"),
    "blind": ({"validate": "def validate(env):\n    return env.nothing"}, "the validator failed: Traceback"),
    "silent": ({"validate": "def validate(env):\n    return None"}, "the validator gave None"),
    "idle": ({"actions": "_ENV = None"}, "there are no actions"),
}
BY_SET = """
        name = list({"read", "say", "odd", "sleep", "die", "raise_error", "a", "b", "c"})[0]
        return {"type": "none", "args": {"first": name}}
"""
Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return Stage(tmp_path_factory.mktemp("stage"))


@pytest.fixture(scope="module")
def rows(stage: Stage) -> Rows:
    """Everything is played in one run: starting one takes longer than its episodes."""
    for name, (body, _, _) in ENDINGS.items():
        stage.add(name, body)
    stage.add("short", "        return {'type': 'odd'}", task="short", steps=2)
    place = str(stage.folder / "tasks" / "vault" / "validate.py")
    stage.add("cheat", CHEAT.replace("PLACE", repr(place)))
    stage.add("looks", CHEAT.replace("PLACE", repr(place)).replace("os.write(fd, forged)", "pass"))
    stage.add("fooled", SOLVE, task="fickle", validate=FICKLE)
    for name, (files, _) in BROKEN.items():
        stage.add(name, SOLVE, task=name, **files)
    for seed in (7, 7, 8):
        stage.add("again", SOLVE, seed=seed)
        stage.add("by_set", BY_SET, seed=seed)
    stage.add("sharing", SOLVE, task="sharing", setup=SHARED, shared="FACTOR = 5")
    stage.add("prints", "        print('I think')" + SOLVE, task="spoken")
    return stage.play()


@pytest.mark.parametrize("name", ENDINGS)
def test_every_ending_has_its_class_and_its_reward(name: str, rows: Rows):
    (row,) = rows[name]
    _, outcome, kind = ENDINGS[name]
    assert (row["outcome"], row["attempts"], row["reward"]) == (outcome, 1, float(outcome == "passed"))
    assert (row["error"] is None) if kind is None else f": {kind}: " in row["error"]


def test_the_step_budget_may_end_before_the_tool_calls_do(rows: Rows):
    (row,) = rows["short"]
    assert (row["outcome"], row["steps"], row["tool_calls"]) == ("budget_exhausted", 2, 2)
    assert "steps_exhausted: all 2 steps are used" in row["error"]


def test_an_agent_cannot_forge_a_verdict(rows: Rows):
    (row,) = rows["cheat"]
    assert (row["outcome"], row["reward"]) == ("failed", 0.0)
    assert "the action null is wrong: action_must_be_dict" in row["error"], "what it forged is no action"


def test_an_agent_sees_no_file_no_process_and_no_port_of_the_task(rows: Rows):
    assert "[[], []]" in rows["looks"][0]["error"]


def test_a_validator_that_contradicts_itself_is_the_tasks_error(rows: Rows):
    (row,) = rows["fooled"]
    assert row["outcome"] == "verifier_error"
    assert "asked again of the same state, is not" in row["error"]


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_task_is_its_authors_and_no_agent_begins(name: str, rows: Rows):
    (row,) = rows[name]
    assert (row["outcome"], row["reward"], row["steps"]) == ("invalid", None, 0)
    assert BROKEN[name][1] in row["error"]


def test_the_same_seed_leaves_the_same_trace_and_another_one_does_not(rows: Rows):
    for name, ending in (("again", ("passed", 2)), ("by_set", ("failed", 1))):
        said = [row["error"] for row in rows[name]]
        assert [(row["outcome"], row["steps"]) for row in rows[name]] == [ending] * 3, said
        first, second, other = (row["trace_sha256"] for row in rows[name])
        assert first == second, f"sets too have the order that the seed gives them: {said}"
        assert name == "by_set" or other != first


def test_a_task_imports_its_own_modules(rows: Rows):
    assert rows["sharing"][0]["outcome"] == "passed"


def test_what_an_agent_prints_is_in_its_log_and_the_trajectory_has_every_step(rows: Rows, stage: Stage):
    assert rows["prints"][0]["outcome"] == "passed"
    (folder,) = (each.parent for each in (stage.folder / "rollouts").rglob("spoken/*/trajectory.json"))
    assert (folder / "logs" / "agent.txt").read_bytes() == b"I think\n" * 2
    steps = json.loads((folder / "trajectory.json").read_text())["steps"]
    assert [each["source"] for each in steps] == ["user", "agent", "agent"]
    assert steps[1]["tool_calls"][0]["function_name"] == "read"
    content = steps[1]["observation"]["results"][0]["content"]
    assert json.loads(content) == {"ok": True, "text": "the code is 21"}


def test_a_hang_and_a_slow_environment_are_told_apart(tmp_path: Path):
    stage = Stage(tmp_path)
    stage.add("hangs", "        while True: pass")
    stage.add("waits", "        return {'type': 'sleep'}")
    rows = stage.play(timeout_s=1.0)
    assert [rows[name][0]["outcome"] for name in ("hangs", "waits")] == ["agent_timeout"] * 2
    assert "agent: non_termination: the agent did not end within 1 s" in rows["hangs"][0]["error"]
    assert "agent: timeout: " in rows["waits"][0]["error"]
