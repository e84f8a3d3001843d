from __future__ import annotations

import json

import pytest

from proctor.agents.command import variables
from proctor.agents.terminal.beginning import offered, remembered
from proctor.errors import TaskError
from proctor.model.task import McpServer

SERVERS = (
    McpServer(name="web", url="http://web:8000/sse"),
    McpServer(name="files", transport="stdio", command="serve", args=("-v", "/data")),
)


def test_nothing_is_said_of_what_a_task_does_not_offer(context):
    assert offered(context()) == ""
    assert variables(context()) == {}


def test_servers_and_skills_are_told_as_a_text_and_as_variables(context):
    full = context(mcp_servers=SERVERS, skills_dir="/skills")
    text = offered(full)
    assert "- web: sse, url: http://web:8000/sse" in text
    assert "- files: stdio, command: serve -v /data" in text
    assert "/skills" in text
    known = variables(full)
    assert known["PROCTOR_SKILLS_DIR"] == "/skills"
    assert json.loads(known["PROCTOR_MCP_SERVERS"]) == [
        {"name": "web", "transport": "sse", "url": "http://web:8000/sse"},
        {"name": "files", "transport": "stdio", "command": "serve", "args": ["-v", "/data"]},
    ]


def test_earlier_work_becomes_messages(tmp_path):
    assert remembered(None) == []
    file = tmp_path / "trajectory.json"
    steps = [
        {"source": "user", "message": "Start."},
        {
            "source": "agent",
            "message": [{"type": "text", "text": "I look."}],
            "tool_calls": [{"tool_call_id": "1", "function_name": "shell", "arguments": {"command": "ls"}}],
            "observation": {"results": [{"content": "a.txt"}]},
        },
        {"source": "agent", "message": "Done."},
    ]
    file.write_text(json.dumps({"schema_version": "ATIF-v1.4", "steps": steps}))
    assert remembered(file) == [
        {"role": "user", "content": "Start."},
        {"role": "assistant", "content": 'I look.\n[shell {"command": "ls"}]'},
        {"role": "user", "content": "a.txt"},
        {"role": "assistant", "content": "Done."},
    ]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"steps": 3}', '{"steps": [{"source": "moon"}]}', '{"steps": [1]}']
)
def test_what_is_no_trajectory_is_the_tasks_fault(tmp_path, text):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(TaskError, match="not an ATIF trajectory"):
        remembered(tmp_path / "t.json")
