"""A store for the page's tests: runs with every kind of end, a long run, and trials with transcripts."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import msgspec
from tests import made_rollouts, made_runs

from proctor.runfolder.read import RunData
from proctor.settings import load_settings
from proctor.store.blobs import Blobs, open_blobs
from proctor.store.open import open_store
from proctor.store.store import Store

COMPARISON = "20261116T020000-aaaaaa"
LONG = "20261115T020000-cccccc"
SWEEP = "20261114T020000-dddddd"
TALK = "20261113T020000-eeeeee"
NIGHTS = tuple(f"202611{day:02d}T020000-bbbb{day:02d}" for day in (10, 11, 12))
MANY_TRIALS = 10_000
MANY_STEPS = 5_000
OTHER = 2
"""The trial of the talk that passes."""
FAILING = 3
"""The step of the short transcript whose command fails."""

DIFF = """diff --git a/app.py b/app.py
--- a/app.py
+++ b/app.py
@@ -1,2 +1,2 @@
 import sys
-print('a')
+print('b')
diff --git a/query.sql b/query.sql
--- a/query.sql
+++ b/query.sql
@@ -1,4 +1,4 @@
 select 1;
--- an old remark
-select 2;
+++ counter
+select 3;
 select 4;
"""
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
_COUNTS = {
    "tests": 2,
    "passed": 1,
    "failed": 1,
    "pending": 0,
    "skipped": 0,
    "other": 0,
    "start": 0,
    "stop": 1,
}
_FAILED = {"name": "test_says_b", "status": "failed", "duration": 20, "message": "expected b, found a"}
REPORT = {
    "results": {
        "tool": {"name": "pytest"},
        "summary": _COUNTS,
        "tests": [
            {"name": "test_prints", "status": "passed", "duration": 12},
            {**_FAILED, "trace": "E assert"},
        ],
    }
}


def fill(home: Path, *, many_trials: int = MANY_TRIALS, many_steps: int = MANY_STEPS) -> None:
    """Write everything into the store of a home folder."""
    settings = load_settings({"PROCTOR_HOME": str(home)})
    blobs = open_blobs(settings.blobs_url)
    day = 86_400
    now = time.time()
    with open_store(settings.store_url) as store:
        _put(store, made_rollouts.comparison(), COMPARISON, now - day)
        _put(store, long_run(many_trials), LONG, now - 2 * day)
        _put(store, made_runs.two_parameters(), SWEEP, now - 3 * day, "pragma_sweep")
        _put(store, talk(blobs, many_steps), TALK, now - 4 * day)
        for night, name in enumerate(NIGHTS):
            _put(store, nightly(night), name, now - (5 + night) * day)


def _put(store: Store, data: RunData, run_id: str, at: float, name: str = "") -> None:
    times = {"created_at": at - 1, "started_at": at, "finished_at": at + 600}
    info = msgspec.structs.replace(data.info, id=run_id, **times, **({"name": name} if name else {}))
    tries = [(each, each is trial.counted) for trial in data.trials for each in trial.attempts]
    store.import_run(info, [trial.planned for trial in data.trials], tries)


def nightly(seed: int) -> RunData:
    """One agent on nine tasks."""
    study = made_rollouts.Study()
    for at, task in enumerate(made_rollouts.TASKS):
        study.cell(
            task, [float((at + seed + each) % 3 > 0) for each in range(5)], "terminal", model="local/large"
        )
    return study.data(name="nightly")


def long_run(trials: int) -> RunData:
    """So many trials that a table must be windowed."""
    study = made_rollouts.Study()
    for task in range(trials // 10):
        study.cell(f"task-{task:04d}", [float((task + each) % 3 > 0) for each in range(10)], "oracle")
    return study.data(name="long_run")


def talk(blobs: Blobs, many: int) -> RunData:
    """A short transcript that fails, a long one, and one that parts from the first at its third step."""
    pairs = []
    for rollout, steps in enumerate((_short(), _steps(many), _other())):
        trial = made_rollouts.planned(rollout, "say-b", "terminal", model="local/large", rollout=rollout)
        text = json.dumps({"schema_version": "ATIF-v1.4", "agent": {"name": "terminal"}, "steps": steps})
        artifacts = (
            blobs.put_bytes(text.encode(), "trajectory.json", "application/json"),
            blobs.put_bytes(DIFF.encode(), "artifacts/diff.patch", "text/x-diff"),
            blobs.put_bytes(f"first line\n{HOSTILE}\nlast line\n".encode(), "logs/agent.txt", "text/plain"),
            blobs.put_bytes(json.dumps(REPORT).encode(), "verifier/ctrf.json", "application/json"),
        )
        record = made_rollouts.record(trial, "passed" if rollout == OTHER else "failed", artifacts=artifacts)
        pairs.append((trial, [record]))
    return made_rollouts.run_of(pairs, name="talk")


def _step(number: int, message: str, command: str = "", output: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {
        "step_id": number,
        "timestamp": f"2026-11-13T02:{number // 60 % 60:02d}:{number % 60:02d}+00:00",
        "source": "agent",
        "message": message,
        "metrics": {"prompt_tokens": 100 * number, "completion_tokens": 20, "cost_usd": 0.001},
    }
    if command:
        call = {"tool_call_id": f"c{number}", "function_name": "shell", "arguments": {"command": command}}
        found["tool_calls"] = [call]
        found["observation"] = {"results": [{"source_call_id": f"c{number}", "content": output}]}
    return found


def _short() -> list[dict[str, Any]]:
    long = "\n".join(f"line {each}" for each in range(1, 201))
    told = {"step_id": 1, "timestamp": "2026-11-13T02:00:00+00:00", "source": "user"}
    broken = "Traceback (most recent call last):\nValueError: no\n\n[exit code 1]"
    return [
        {**told, "message": f"Print b. {HOSTILE}"},
        _step(2, "I look around.", "ls", "app.py\n\n[exit code 0]"),
        _step(FAILING, "I run it.", "python app.py", broken),
        _step(4, "A long listing.", "seq 200", f"{long}\n\n[exit code 0]"),
        _step(5, "Done."),
    ]


def _other() -> list[dict[str, Any]]:
    told, look, _, _, done = _short()
    return [
        told,
        look,
        _step(FAILING, "I edit it.", "sed -i s/a/b/ app.py", "[exit code 0]"),
        _step(4, "I try it.", "python app.py", "b\n\n[exit code 0]"),
        {**done, "step_id": 5},
    ]


def _steps(count: int) -> list[dict[str, Any]]:
    return [
        _step(each, f"Step {each}.", f"echo {each}", f"{each}\n\n[exit code {int(each % 50 == 0)}]")
        for each in range(1, count + 1)
    ]
