"""What a row `agent, task_ref, seed` means: an agent's file, and the folder of a step-by-step task."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from proctor.errors import ProctorError, UsageError
from proctor.model.task import Task
from proctor.tasks.read import read_task

AGENT = "episode"
"""The agent that runs such files."""


def is_file_agent(agent: str) -> bool:
    """Whether a row names its agent by a Python file, or by the path of a folder with an `agent.py`."""
    return agent.endswith(".py") or ("/" in agent and ":" not in agent)


def find_agent(agent: str, base: Path) -> Path:
    """The agent's file or folder, read against the scenario's folder, then against this one."""
    for root in _roots(base):
        if (root / agent).is_file() or (root / agent / "agent.py").is_file():
            return (root / agent).absolute()
    wanted = "" if agent.endswith(".py") else ": no file, and no folder with an agent.py"
    raise UsageError(f"no agent at {agent}{wanted} (looked in {base} and here)")


def find_task(reference: str, base: Path) -> str:
    """The folder of `name@version`: below `tasks/` of the scenario's folder or of this one, or a path."""
    name, _, version = reference.partition("@")
    for root in _roots(base):
        for place in (Path("tasks", name), Path(name)):
            if (root / place / "task.toml").is_file():
                _check_version(read_task(root / place), version, reference)
                return str(place)
    raise UsageError(
        f"no task '{reference}': there is no folder tasks/{name} with a task.toml (looked in {base} and here)"
    )


def _check_version(task: Task, version: str, reference: str) -> None:
    if version and version != task.version:
        raise UsageError(f"'{reference}' is not there: {task.path / 'task.toml'} has version {task.version}")


def needs_no_image(task: str, base: Path) -> bool:
    """Whether a task is step by step and names no image: any Python will do."""
    for root in _roots(base):
        try:
            found = read_task(root / task)
        except ProctorError:
            continue
        where = found.environment
        return found.kind == "episode" and not (where.image or where.dockerfile)
    return False


def _roots(base: Path) -> Iterator[Path]:
    yield base
    yield Path.cwd()


def ceilings(paths: dict[str, str]) -> dict[str, dict[str, int]]:
    """Digest of a task → its budgets, for the step-by-step ones among the folders."""
    found = {}
    for digest, path in paths.items():
        try:
            episode = read_task(Path(path)).episode
        except ProctorError:
            continue
        if episode:
            found[digest] = {"steps": episode.steps, "tool_calls": episode.tool_calls}
    return found
