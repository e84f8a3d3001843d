"""An example of each answer about trials, as in `examples.py`."""

from __future__ import annotations

from typing import Any

from proctor.server.reference.example import Free, Maybe, Named

ID = "20261117T110227-1abae2"
KEY = "2015266baaa22e942f9c297545947ffdc9e0420276b26b7bdc7f7ac56ca80d3b"
FAILURE = Maybe(phase="agent", type="ProviderError", message="the provider answers with 529", traceback="")
TRIAL: dict[str, Any] = {
    "index": 0,
    "key": KEY,
    "label": "say-b × terminal/openai/gpt-5 #1",
    "task": "say-b",
    "agent": "terminal",
    "model": "openai/gpt-5",
    "params": {},
    "rollout": 0,
    "state": "done",
    "outcome": "failed",
    "blame": "agent",
    "reward": 0.0,
    "passed": False,
    "took_s": 1.8,
    "attempts": 1,
    "cost_usd": 0.04,
    "unknown_cost": 0,
    "tokens": 5_120,
    "suspect": False,
    "started_at": 1794913348.6,
    "ended_at": 1794913350.4,
    "worker": None,
    "message": "",
}
PHASES = Named(image=0.01, start=0.012, agent=1.4, verify=0.4)
ARTIFACT: dict[str, Any] = {"name": "trajectory.json", "size_bytes": 3505, "media_type": "application/json"}
ATTEMPT: dict[str, Any] = {
    "number": 1,
    "outcome": "failed",
    "blame": "agent",
    "counts": True,
    "reward": 0.0,
    "failure": FAILURE,
    "took_s": 1.8,
    "phases_s": PHASES,
    "metrics": {},
    "iterations": 0,
    "ledger": {},
    "usage": {},
    "cost_usd": 0.04,
    "unknown_cost": 0,
    "tokens": 5_120,
    "notes": [""],
    "suspect": False,
    "system_changes": {},
    "image": {},
    "artifacts": [ARTIFACT],
    "worker": "host-4711",
    "started_at": 1794913348.6,
    "ended_at": 1794913350.4,
}
RECORD: dict[str, Any] = {
    "index": 0,
    "counts": True,
    "key": KEY,
    "number": 1,
    "outcome": "failed",
    "started_at": 1794913348.6,
    "ended_at": 1794913350.4,
    "reward": 0.0,
    "failure": FAILURE,
    "phases_s": PHASES,
    "metrics": {},
    "iterations": [],
    "ledger": {},
    "usage": {},
    "artifacts": [{**ARTIFACT, "digest": "5b6b92218768fd9426e819334aac19266884442c835c3d17c9df409e59b0aa11"}],
    "notes": [""],
    "worker": "host-4711",
    "blame": "agent",
}
PLANNED: dict[str, Any] = {
    "key": KEY,
    "index": 0,
    "kind": "task",
    "subject": "say-b",
    "subject_digest": "e18b663fe978cbb520514237fc2cd325d6a9024054dc1c3b99ce04db6d2bf671",
    "body": 0,
    "params": {},
    "seed": 0,
    "agent": "terminal",
    "agent_version": "1",
    "model": "openai/gpt-5",
    "overrides": {},
    "rollout": 0,
    "label": "say-b × terminal/openai/gpt-5 #1",
}
STEP: dict[str, Any] = {
    "id": 2,
    "source": "agent",
    "message": Free("I look at the file."),
    "reasoning": Free(""),
    "tool_calls": [{"id": "call_1", "name": "bash", "arguments": Free({"command": "cat app.py"})}],
    "observation": Maybe(results=[{"content": Free("print('a')")}]),
    "metrics": {},
    "at": 1794913349.1,
    "depth": 0,
    "copied": False,
}
VERIFIER: dict[str, Any] = {
    "attempt": 1,
    "reward": 0.0,
    "outcome": "failed",
    "rewards": Named(reward=0.0),
    "steps": {},
    "tests": [
        {
            "name": "test_says_b",
            "status": "failed",
            "duration_s": 0.02,
            "message": "expected b, found a",
            "trace": "",
            "suite": "",
            "step": "",
        }
    ],
    "counts": Named(passed=1, failed=1),
    "rubrics": [],
    "unit_score": 0.0,
    "judge_score": None,
    "judge": None,
    "controls": [],
    "suspect": False,
    "system_changes": {},
    "failure": FAILURE,
    "verify_s": 0.4,
    "output": "",
    "files": ["verifier/ctrf.json"],
}
CALL: dict[str, Any] = {
    "number": 1,
    "id": "c-1",
    "attempt": 1,
    "at": 1794913348.9,
    "started_at": 1794913348.9,
    "model": "openai/gpt-5",
    "settled": True,
    "prompt_tokens": 480,
    "completion_tokens": 32,
    "cached_tokens": 0,
    "cache_write_tokens": 0,
    "reasoning_tokens": 0,
    "waited_s": 0.0,
    "first_token_s": 0.4,
    "worked_s": 1.1,
    "retries": 0,
    "status": 200,
    "cost_usd": 0.004,
}
_TRIAL = "GET /api/trials/{run}/{index}"
_SIDE = {"run": ID, "steps": 5, "name": "#1", "trial": TRIAL}
_SPAN = {"from": 1, "count": 2}
TRIALS: dict[str, Any] = {
    _TRIAL: {
        "trial": TRIAL,
        "attempts": [ATTEMPT],
        "sentence": "test_says_b failed: expected b, found a",
        "previous": None,
        "next": 1,
        "next_failure": 1,
        "live": Maybe(phase="agent", since=1794913348.9, attempt=1, worker="host-4711"),
        "run": {"id": ID, "name": "hello", "status": "done", "kind": "task", "total": 9},
        "labels": ["looked at"],
        "comments": [],
    },
    f"{_TRIAL}/transcript": {
        "attempt": 1,
        "live": False,
        "total": 5,
        "agent": {},
        "steps": [STEP],
    },
    f"{_TRIAL}/verifier": VERIFIER,
    f"{_TRIAL}/files": {
        "attempt": 1,
        "live": False,
        "files": [{"path": "artifacts/diff.patch", "size": 107, "media_type": "text/x-diff"}],
    },
    f"{_TRIAL}/diff": {"attempt": 1, "diff": "--- a/app.py\n+++ b/app.py\n", "size": 107, "cut": False},
    f"{_TRIAL}/resources": {
        "attempt": 1,
        "phases_s": PHASES,
        "ledger": {},
        "series": [
            {"name": "cpu_cores", "unit": "cores", "at": [0.5, 1.0], "values": [0.2, 0.9], "limit?": 1.0}
        ],
        "events": [{"at": 1.0, "kind": "oom_kill", "text": "a process was killed for its memory"}],
    },
    f"{_TRIAL}/calls": {"calls": [CALL], "total": 1},
    f"{_TRIAL}/beside": {
        "a": _SIDE,
        "b": {**_SIDE, "name": "#3"},
        "sentence": "They part at step 3: only #3 does “sed -i s/a/b/ app.py”.",
        "spans": [{"same": True, "a": _SPAN, "b": _SPAN}],
    },
    f"{_TRIAL}/logs": {
        "attempt": 1,
        "live": False,
        "logs": [{"name": "agent.txt", "size": 105, "live": False}],
    },
    f"{_TRIAL}/logs/{{name}}/search": {
        "matches": [{"line": 3, "offset": 95, "text": "last line"}],
        "next": None,
    },
}
TRIAL_SHAPES: dict[str, Any] = {
    "Trial": TRIAL,
    "Attempt": ATTEMPT,
    "AttemptRecord": RECORD,
    "PlannedTrial": PLANNED,
    "Step": STEP,
    "Verifier": VERIFIER,
    "Call": CALL,
}
