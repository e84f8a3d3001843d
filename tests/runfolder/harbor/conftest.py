"""A job as Harbor writes it, made by hand: the facts that an import relies on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

AddTrial = Callable[..., Path]
AT = "2026-01-02T03:04:{:02d}.500000Z"


def timing(start: int, end: int) -> dict[str, str]:
    return {"started_at": AT.format(start), "finished_at": AT.format(end)}


def exception(kind: str) -> dict[str, Any]:
    return {"exception_type": kind, "exception_message": "it broke", "exception_traceback": "Traceback …",
            "occurred_at": AT.format(9)}  # fmt: skip


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "jobs" / "nightly"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"job_name": "nightly", "agents": [{"name": "coder"}]}))
    (folder / "lock.json").write_text(json.dumps({"harbor": {"version": "0.24.0"}}))
    result = {"id": "e2fa1451-d2e6-4bda-82d5-49fbae53d467", "started_at": "2026-01-02T03:04:00.250000",
              "finished_at": "2026-01-02T03:05:00.250000", "n_total_trials": 0, "stats": {}}  # fmt: skip
    (folder / "result.json").write_text(json.dumps(result))
    return folder


@pytest.fixture
def add_trial(job: Path) -> AddTrial:
    """A trial that passed, unless told otherwise; `files` are laid beside its documents."""
    count = 0

    def add(task: str = "made/hello", *, files: dict[str, str] | None = None, **more: Any) -> Path:
        nonlocal count
        name = f"{task.rpartition('/')[2]}__{count:07d}"
        result = {
            "id": f"00000000-0000-0000-0000-{count:012d}",
            "task_name": task,
            "trial_name": name,
            "task_id": {"path": f"tasks/{task}"},
            "task_checksum": "c" * 64,
            "config": {"task": {"path": f"tasks/{task}"}, "agent": {"name": "coder", "kwargs": {}}},
            "agent_info": {"name": "coder", "version": "2.0", "model_info": None},
            "agent_result": {"n_input_tokens": None, "cost_usd": None, "metadata": None},
            "verifier_result": {"rewards": {"reward": 1.0}},
            "exception_info": None,
            "started_at": AT.format(1 + count),
            "finished_at": AT.format(9 + count),
            "environment_setup": timing(1, 2),
            "agent_setup": timing(2, 3),
            "agent_execution": timing(3, 7),
            "verifier": timing(7, 8),
            "step_results": None,
            **more,
        }
        count += 1
        folder = job / name
        lock = {"task": {"digest": f"sha256:{task.encode().hex():0>64}"}}
        documents = {"result.json": result, "config.json": result["config"], "lock.json": lock}
        written = {each: json.dumps(document) for each, document in documents.items()}
        for path, text in {**written, **(files or {})}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        return folder

    return add
