"""A stand-in for the Harbor package: the few names that the bridge's script uses, for this Python.

What its one agent does is chosen by the option `does`; its environment is a folder. The real Harbor is met in
tests/integration/test_harbor_agents.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from proctor.sandbox.harbor.place import ABOUT, PACKAGES, PYTHON, VERSION, HarborPlace, find, homes

_FILES = {
    "agents/factory.py": """
import asyncio, json, os, signal, sys
from harbor.models.agent.name import AgentName

class Agent:
    def __init__(self, logs_dir, model_name, extra_env, mcp_servers, skills_dir, does="solve", **options):
        if options:
            raise ValueError(f"unknown options {sorted(options)}")
        self.logs_dir, self.does, self.extra_env = logs_dir, does, extra_env

    def version(self):
        return "1"

    async def setup(self, environment):
        if self.does == "fail to set up":
            raise RuntimeError("no compiler")
        if self.does == "die while setting up":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.does == "set up for ever":
            await asyncio.sleep(1000)

    async def run(self, instruction, environment, context):
        steps = [{"source": "user", "message": instruction}]
        steps.append({"source": "agent", "message": "I try.", "timestamp": "2020-01-01T00:00:00+00:00",
            "tool_calls": [{"tool_call_id": "c", "function_name": "sh", "arguments": {"command": "ls"}}],
            "observation": {"results": [{"content": "a"}]},
            "metrics": {"prompt_tokens": 5, "completion_tokens": 2, "extra": "x"}})
        steps.append({"source": "agent", "message": "again", "is_copied_context": True})
        document = {"schema_version": "ATIF-v1.6", "steps": steps}
        (self.logs_dir / "trajectory.json").write_text(json.dumps(document))
        print("working with", sorted(os.environ), flush=True)
        if self.does == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.does == "raise":
            raise LookupError("lost its way")
        if self.does == "work for ever":
            await asyncio.sleep(1000)
        command = self.does.partition("$ ")[2] or "echo hello > /app/hello.txt"
        found = await environment.exec(command, env={"A": "1", **self.extra_env}, timeout_sec=5)
        (self.logs_dir / "found.json").write_text(json.dumps([found.return_code, found.stdout, found.stderr]))
        await environment.upload_file(self.logs_dir / "found.json", "/tmp/found.json")
        if self.does == "steal":
            await environment.download_file("/etc/passwd", "/tmp/stolen")
        context.metadata = {"n_episodes": 1}

    def populate_context_post_run(self, context):
        pass

class AgentFactory:
    @staticmethod
    def registered_names():
        return sorted(each.value for each in AgentName)

    @staticmethod
    def create_agent_from_name(name, **given):
        return Agent(**given)
""",
    "environments/base.py": """
from dataclasses import dataclass

@dataclass
class ExecResult:
    return_code: int
    stdout: str = ""
    stderr: str = ""

class BaseEnvironment:
    def __init__(self, **given):
        self.__dict__.update(given)
        self.default_user = None

    def _resolve_user(self, user):
        return user if user is not None else self.default_user

    def _merge_env(self, env):
        return env

    @classmethod
    def resource_capabilities(cls):
        return None
""",
    "environments/capabilities.py": """
class EnvironmentCapabilities:
    def __init__(self, **given):
        self.__dict__.update(given)
""",
    "environments/factory.py": """
import importlib

class EnvironmentFactory:
    @staticmethod
    def create_environment(kind, **given):
        raise ImportError(f"{kind.value} needs more packages")

    @staticmethod
    def create_environment_from_import_path(path, **given):
        module, _, name = path.partition(":")
        return getattr(importlib.import_module(module), name)(**given)
""",
    "models/agent/context.py": "class AgentContext:\n    metadata = None\n",
    "models/agent/name.py": (
        "from enum import Enum\n"
        "names = {'TWO': 'terminus-2', 'NOP': 'nop', 'CODE': 'claude-code'}\n"
        "AgentName = Enum('AgentName', names, type=str)\n"
    ),
    "models/environment_type.py": (
        "from enum import Enum\nEnvironmentType = Enum('EnvironmentType', {'MODAL': 'modal'}, type=str)\n"
    ),
    "models/task/config.py": """
from types import SimpleNamespace

MCPServerConfig = NetworkPolicy = EnvironmentConfig = SimpleNamespace
""",
    "models/trial/paths.py": (
        "class TrialPaths:\n    def __init__(self, folder):\n        self.folder = folder\n"
    ),
}


def install_stand_in(cache: Path) -> HarborPlace:
    """Put it where `proctor agents install harbor` would put Harbor."""
    folder = homes(cache) / VERSION
    for name, text in _FILES.items():
        file = folder / PACKAGES / "harbor" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (folder / PYTHON).parent.mkdir()
    (folder / PYTHON).symlink_to(Path(sys.executable).resolve())
    listed = {"agents": ["claude-code", "nop", "oracle", "terminus-2"], "environments": ["modal"]}
    (folder / ABOUT).write_text(json.dumps(listed))
    about = {"name": "harbor", "version": VERSION, "size_bytes": 1, "loader": ""}
    (folder / "agent.json").write_text(json.dumps(about))
    found = find(cache)
    assert found
    return found
