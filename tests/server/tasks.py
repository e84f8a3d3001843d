"""Tasks as ZIPs, for uploads. They run on this machine's own system, in well under a second."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import Any

TASK = """
version = "1.0"
[metadata]
description = "Write a word into a file."
[agent]
timeout_sec = 60.0
[verifier]
timeout_sec = 60.0
[environment]
docker_image = "example/none:1"
"""
TEST = """#!/bin/bash
mkdir -p /logs/verifier
if [ "$(cat /tmp/word 2>/dev/null)" = hello ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
echo judged
"""
SOLVE = """#!/bin/bash
echo working
sleep {seconds}
echo hello > /tmp/word
"""


def files(name: str = "hello", seconds: float = 0.0) -> dict[str, str]:
    return {
        f"{name}/task.toml": TASK,
        f"{name}/instruction.md": f"Write hello into /tmp/word. ({name})\n",
        f"{name}/tests/test.sh": TEST,
        f"{name}/solution/solve.sh": SOLVE.format(seconds=seconds),
    }


def packed(content: Mapping[str, str]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as opened:
        for path, text in content.items():
            opened.writestr(path, text)
    return target.getvalue()


def upload(client: Any, name: str = "hello", seconds: float = 0.0, **fields: Any) -> dict[str, Any]:
    data = {key: str(value) for key, value in fields.items()}
    answer = client.post(
        "/api/tasks",
        files={"file": (f"{name}.zip", packed(files(name, seconds)))},
        data=data,
        headers={"X-Proctor-Request": "1"},
    )
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def spec(upload_id: str, *, rollouts: int = 1, agent: str = "oracle", **more: Any) -> dict[str, Any]:
    """On this machine's own system: no registry is needed."""
    entry = {"path": {"upload": upload_id}, "agent": agent, "rollouts": rollouts}
    return {"name": "hello", "tasks": [entry], "sandbox": {"host_root": True}, **more}
