"""The agent of step-by-step tasks: its file, its version, and what it cannot do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from proctor.agents.base import AgentUnavailable
from proctor.agents.episodes.agent import INSIDE, PROGRAMS, EpisodeAgent
from proctor.agents.registry import make_agent
from proctor.errors import UsageError
from proctor.tasks.read import read_task

ROOT = Path(__file__).parents[3]


def test_its_version_is_over_its_files(tmp_path: Path):
    file = tmp_path / "mine.py"
    file.write_text("a = 1")
    first = make_agent("episode", {"file": str(file)}).version
    file.write_text("a = 2")
    assert make_agent("episode", {"file": str(file)}).version != first
    (tmp_path / "agent.py").write_text("import mine")
    assert EpisodeAgent(file=str(tmp_path)).version != EpisodeAgent(file=str(file)).version


def test_its_sandbox_shows_its_file_and_the_programs_and_nothing_else(tmp_path: Path):
    file = tmp_path / "mine.py"
    file.write_text("")
    assert EpisodeAgent(file=str(file)).binds() == {
        f"{INSIDE}/episode": PROGRAMS,
        f"{INSIDE}/agent/mine.py": file,
    }


@pytest.mark.parametrize(("name", "said"), [("none.py", "no such file"), (".", "the folder has no agent.py")])
def test_a_file_that_is_not_there_is_refused(tmp_path: Path, name: str, said: str):
    with pytest.raises(UsageError, match=said):
        EpisodeAgent(file=str(tmp_path / name))


def test_it_does_no_other_tasks(tmp_path: Path):
    (tmp_path / "agent.py").write_text("")
    nothing: Any = None
    running = EpisodeAgent(file=str(tmp_path)).run(
        read_task(ROOT / "tasks" / "config-edit"), nothing, None, nothing
    )
    with pytest.raises(AgentUnavailable, match="is none"):
        asyncio.run(running)
