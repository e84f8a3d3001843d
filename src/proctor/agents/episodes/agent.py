"""Agents of the step-by-step kind: a Python file whose class has `reset`, `observe` and `act`.

The file runs inside a sandbox of its own, and sees of the task only what its actions show.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from proctor.agents.base import AgentContext, AgentResult, AgentUnavailable
from proctor.disk import read_small
from proctor.errors import UsageError
from proctor.model.task import Task
from proctor.sandbox.base import Sandbox

INSIDE = "/opt/proctor"
"""Where the programs of an episode, its agent and its task are, inside."""
PROGRAMS = Path(__file__).parent / "inside"
_MAX_BYTES = 16 << 20
_MOST_FILES = 1000


class EpisodeAgent:
    """Runs `file`: a Python file, or a folder whose `agent.py` may import what is beside it."""

    name = "episode"
    kinds = ("episode",)
    """The kinds of tasks that it can do."""
    inside = True
    path_options = ("file",)
    """Options that name files of this machine: they are stored with a run."""

    def __init__(self, *, file: str) -> None:
        self.source = Path(file)
        if not self.source.exists():
            raise UsageError(f"agent episode: {file}: no such file")
        if self.source.is_dir() and not (self.source / "agent.py").is_file():
            raise UsageError(f"agent episode: {file}: the folder has no agent.py")
        self.version = _digest(self.source)[:12]

    @property
    def place(self) -> str:
        """What is loaded, inside."""
        return f"{INSIDE}/agent" if self.source.is_dir() else f"{INSIDE}/agent/{self.source.name}"

    def binds(self) -> dict[str, Path]:
        """What its sandbox shows: path inside → file or folder of this machine, read-only."""
        return {f"{INSIDE}/episode": PROGRAMS, self.place: self.source.absolute()}

    async def run(
        self, task: Task, sandbox: Sandbox, model: str | None, context: AgentContext
    ) -> AgentResult:
        """Step-by-step tasks call it otherwise, and it can do no others."""
        del sandbox, model, context
        raise AgentUnavailable(f"agent episode does step-by-step tasks; {task.name} is none")


def _digest(source: Path) -> str:
    """Over the Python files and their names."""
    files = sorted(source.rglob("*.py")) if source.is_dir() else [source]
    if len(files) > _MOST_FILES:
        raise UsageError(
            f"agent episode: {source}: more than {_MOST_FILES} Python files; name a smaller folder"
        )
    whole = hashlib.sha256()
    for file in files:
        name = file.relative_to(source).as_posix() if source.is_dir() else ""
        try:
            data = read_small(file, _MAX_BYTES)
        except OSError as error:
            raise UsageError(f"agent episode: {file}: {error.strerror or error}") from error
        whole.update(f"{name}\0{hashlib.sha256(data).hexdigest()}\n".encode())
    return whole.hexdigest()
