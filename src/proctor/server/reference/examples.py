"""An example of each route's answer, from which its schema is made. A test holds them to real answers."""

from __future__ import annotations

from typing import Any

from proctor.server.reference.example import Named, page
from proctor.server.reference.results import RESULT_SHAPES, RESULTS

TASK: dict[str, Any] = {
    "id": "up_3f2a9c41d07be688",
    "name": "hello",
    "description": "Write a word into a file.",
    "original_filename": "hello.zip",
    "file_size": 2868,
    "model": "openrouter/openai/gpt-5",
    "agent": "terminus-2",
    "harness": "proctor",
    "num_runs": 10,
    "status": "pending",
    "created_at": "2026-11-17T11:02:27.089Z",
    "started_at": None,
    "completed_at": None,
    "total_runs": 10,
    "passed_runs": 0,
    "failed_runs": 0,
}
SCHEDULE: dict[str, Any] = {
    "id": "sc_3f2a9c41d07be688",
    "name": "nightly",
    "project": "default",
    "owner": "ada",
    "created_at": 1794913347.74,
    "cron": "daily 02:00",
    "timezone": "Europe/Berlin",
    "enabled": True,
    "next_at": 1794963600.0,
    "last_at": None,
    "last_run": None,
    "last_error": "",
    "missed": 0,
}
WEBHOOK: dict[str, Any] = {
    "id": "wh_3f2a9c41d07be688",
    "project": "default",
    "owner": "ada",
    "created_at": 1794913347.74,
    "kind": "event",
    "url": "https://chat.example/proctor",
    "events": ["run.finished", "run.failed"],
    "enabled": True,
    "last_at": None,
    "last_status": "",
}
COMMENT = {
    "id": "co_3f2a9c41d07be688",
    "author": "ada",
    "at": 1794913347.74,
    "text": "The test expects a tab.",
}
TASK_RUN: dict[str, Any] = {
    "id": "up_3f2a9c41d07be688-1",
    "task_id": "up_3f2a9c41d07be688",
    "run_number": 1,
    "status": "passed",
    "started_at": "2026-11-17T11:02:28.604Z",
    "completed_at": "2026-11-17T11:02:29.081Z",
    "tests_total": 4,
    "tests_passed": 4,
    "tests_failed": 0,
    "logs": None,
    "error_message": None,
    "duration_seconds": 0.48,
}
UPLOAD: dict[str, Any] = {
    "id": "up_3f2a9c41d07be688",
    "project": "default",
    "owner": "ada",
    "created_at": 1794913347.09,
    "name": "hello",
    "description": "Write a word into a file.",
    "filename": "hello.zip",
    "size_bytes": 2868,
    "digest": "e18b663fe978cbb520514237fc2cd325d6a9024054dc1c3b99ce04db6d2bf671",
    "task": "examples/hello",
    "findings": [],
    "agent": "terminus-2",
    "model": "",
    "num_runs": 10,
    "run_id": None,
    "check_id": None,
}
TOKEN: dict[str, Any] = {
    "id": "tok_5d1c22e80a7f",
    "name": "nightly",
    "user": "ada",
    "project": "default",
    "scopes": ["read", "run"],
    "created_at": 1794913347.0,
    "expires_at": None,
    "revoked_at": None,
    "used_at": None,
}
PROJECT: dict[str, Any] = {
    "id": "nightly",
    "title": "Nightly suites",
    "created_at": 1794913347.0,
    "max_runs": 4,
    "day_usd": 50.0,
    "keep_days": None,
}
QUEUED: dict[str, Any] = {
    "message": "10 runs are queued",
    "task_id": "up_3f2a9c41d07be688",
    "runs_queued": 10,
    "status": "pending",
    "poll_url": "/api/tasks/up_3f2a9c41d07be688",
}
PLAN: dict[str, Any] = {
    "trials": 6,
    "by": {"task": {}, "agent": {}, "model": {}},
    "seconds": {"low": 40.0, "mid": 61.0, "high": 118.0},
    "cost_usd": None,
    "untimed": [],
    "uncosted": [],
    "unknown_prices": [],
    "warnings": [],
    "errors": [],
}
SESSION: dict[str, Any] = {
    "mode": "tokens",
    "read_only": False,
    "user": "ada",
    "project": "default",
    "scopes": ["read", "run"],
}
UPLOADED = {
    **TASK,
    **{name: UPLOAD[name] for name in ("project", "task", "digest", "findings", "check_id")},
    "duplicate": False,
}
HEALTH = {"status": "ok", "store": "ok", "engine": "ok", "server": "ok"}


WAITING: dict[str, Any] = {
    "run": "20261117T110227-1abae2",
    "name": "hello",
    "kind": "task",
    "status": "running",
    "project": "default",
    "owner": "ada",
    "priority": 0,
    "queued_at": 1794913347.7,
    "pending": 3,
    "running": 4,
    "memory_mb": 512,
    "place": 1,
    "wanted": True,
    "waits_s": 12.5,
    "reason": "Trials that run: 4; the next begins when one of them ends.",
}
DEMAND: dict[str, Any] = {
    "trials": 7,
    "waiting": 3,
    "delayed": 0,
    "running": 4,
    "oldest_s": 12.5,
    "slots": 1,
    "wanted_workers": 7,
    "classes": [
        {
            "kind": "task",
            "backend": "auto",
            "labels": "",
            "waiting": 3,
            "delayed": 0,
            "running": 4,
            "oldest_s": 12.5,
            "memory_mb": 512,
        }
    ],
}
WORKER: dict[str, Any] = {
    "name": "host-4711",
    "running": 1,
    "trials": [
        {
            "run": "20261117T110227-1abae2",
            "index": 0,
            "task": "hello",
            "state": "running",
            "started_at": 1794913348.6,
            "for_s": 4.2,
            "lease_s": 27.0,
        }
    ],
    "registered": True,
    "host?": "host",
    "version?": "0.1.0",
    "parallel?": 4,
    "cpus?": 8.0,
    "memory_mb?": 16_000,
    "backends?": ["bubblewrap"],
    "labels?": [""],
    "draining?": False,
    "since?": 1794913000.0,
    "only_run?": None,
    "silent_s?": 1.5,
}
SUM: dict[str, Any] = {
    "calls": 90,
    "prompt_tokens": 48_000,
    "completion_tokens": 3_200,
    "cached_tokens": 0,
    "unknown_cost": 0,
    "cost_usd": 0.42,
}
EXPERIMENT: dict[str, Any] = {
    "slug": "sort_list",
    "summary": "Sort a list.",
    "tags": ["cpu"],
    "open_params": False,
    "params": Named(
        size={
            "type": "int",
            "required": False,
            "default": None,
            "choices": [],
            "minimum": None,
            "maximum": None,
            "description": "how many numbers",
        }
    ),
}

EXAMPLES: dict[str, Any] = {
    **RESULTS,
    "GET /api/queue": page(WAITING, total=3, demand=DEMAND),
    "GET /api/workers": page(WORKER, total=1),
    "GET /api/costs": page(
        {"name": "2026-11-17", **SUM, "at?": 1794873600, "run?": ""},
        **{"from": 1792321347.0, "to": 1794913347.0, "by": "day", "sum": SUM},
    ),
    "GET /api/experiments": page(EXPERIMENT),
    "GET /api/stored-tasks": page(
        {
            "name": "examples/hello",
            "digest": "e18b663fe978cbb520514237fc2cd325d6a9024054dc1c3b99ce04db6d2bf671",
            "last_run_at": 1794913347.74,
            "trials": 9,
            "scored": 9,
            "passed": 6,
            "last_run": "20261117T110227-1abae2",
        }
    ),
    "GET /api/runs/{run}/secrets": {
        "secrets": Named(OPENAI_API_KEY="sk-…"),
        "providers": Named(
            openai={
                "base_url": "https://api.openai.com/v1",
                "key_env": "OPENAI_API_KEY",
                "apis": ["chat", "responses"],
                "auth": "bearer",
                "headers": Named({"X-Team": "evals"}),
                "concurrency": 1024,
                "translate": "",
                "translate_key_env": "",
            }
        ),
    },
    "GET /api/schedules/{schedule}": {**SCHEDULE, "submission": {}},
    "POST /api/plan": PLAN,
    "GET /api/session": SESSION,
    "POST /api/session": SESSION,
    "GET /api/oidc": {"login": "/api/oidc/login"},
    "GET /api/tokens": page(TOKEN),
    "POST /api/tokens": {"token": "pt_…", **TOKEN},
    "GET /api/users": page({"id": "ada", "created_at": 1794913347.0, "disabled": False}),
    "PATCH /api/users/{user}": {"id": "ada", "disabled": True},
    "GET /api/projects": page({**PROJECT, "open_runs": 1, "spent_today_usd": 3.2}),
    "PUT /api/projects/{project}": PROJECT,
    "GET /api/projects/{project}/members": page({"user": "ada"}),
    "GET /api/secrets": page(
        {
            "project": "default",
            "name": "OPENAI_API_KEY",
            "hint": "…9f3a",
            "updated_at": 1794913347.0,
            "updated_by": "admin",
        }
    ),
    "GET /api/settings": {"mode": "local", "settings": {"home": ".proctor", "serve_parallel": 0}},
    "GET /api/audit": page(
        {
            "id": 41,
            "at": 1794913347.0,
            "actor": "ada",
            "token": "tok_5d1c22e80a7f",
            "project": "default",
            "action": "run.cancel",
            "target": "20261117T110227-1abae2",
            "detail": {},
        }
    ),
    "GET /api/schedules": page(SCHEDULE),
    "POST /api/schedules": SCHEDULE,
    "PATCH /api/schedules/{schedule}": SCHEDULE,
    "POST /api/schedules/{schedule}/start": SCHEDULE,
    "GET /api/webhooks": page(WEBHOOK),
    "POST /api/webhooks": {**WEBHOOK, "secret": "ws_…"},
    "PATCH /api/webhooks/{webhook}": WEBHOOK,
    "POST /api/webhooks/{webhook}/test": {"delivered": True, "status": 200, "said": "HTTP 200"},
    "PUT /api/trials/{run}/{index}/labels": {"labels": ["looked at"]},
    "POST /api/trials/{run}/{index}/comments": COMMENT,
    "POST /api/tasks": UPLOADED,
    "GET /api/uploads": page(UPLOAD, total=1),
    "GET /api/uploads/{upload}": UPLOAD,
    "GET /api/tasks": [TASK],
    "GET /api/tasks/{task}": {**TASK, "runs": [TASK_RUN]},
    "GET /api/tasks/{task}/runs": [TASK_RUN],
    "GET /api/tasks/{task}/runs/{rid}": {**TASK_RUN, "logs": "working\njudged\n"},
    "GET /api/tasks/{task}/runs/{rid}/logs": {
        "run_id": "up_3f2a9c41d07be688-1",
        "task_id": "up_3f2a9c41d07be688",
        "run_number": 1,
        "status": "passed",
        "logs": "working\njudged\n",
        "error_message": None,
    },
    "POST /api/tasks/{task}/execute-async": QUEUED,
    "POST /api/tasks/{task}/runs/{rid}/execute-async": QUEUED,
    "POST /api/tasks/{task}/retry": QUEUED,
    "POST /api/tasks/{task}/cancel": {**TASK, "status": "cancelled"},
    "GET /api/models": [{"id": "openrouter/openai/gpt-5", "name": "openai/gpt-5", "provider": "openrouter"}],
    "GET /api/agents": [{"id": "terminus-2", "name": "Terminus 2", "harness": "proctor"}],
    "GET /api/stats": {
        "tasks": {"total": 3, "pending": 1, "running": 1, "completed": 1, "failed": 0},
        "runs": {"total": 30, "passed": 11, "failed": 4},
    },
    "GET /livez": {"status": "ok"},
    "GET /readyz": HEALTH,
    "GET /health": {**HEALTH, "status": "healthy"},
}
"""`METHOD path` → what it answers."""
SHAPES: dict[str, Any] = {
    **RESULT_SHAPES,
    "Task": TASK,
    "TaskRun": TASK_RUN,
    "Upload": UPLOAD,
    "Queued": QUEUED,
    "Plan": PLAN,
    "Session": SESSION,
    "Token": TOKEN,
    "Project": PROJECT,
    "Schedule": SCHEDULE,
    "Webhook": WEBHOOK,
    "Comment": COMMENT,
    "WaitingRun": WAITING,
    "Demand": DEMAND,
    "Worker": WORKER,
    "Spending": SUM,
    "Experiment": EXPERIMENT,
}
"""Those with a name of their own in the description; the others are written out where they are."""
