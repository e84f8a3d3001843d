"""What is executed: experiments, rollouts, episodes and everything else that makes results."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import Any

import world
from service import ask
from world import WORLD, Camera

PRICES = {"PROCTOR_PRICES": "specs/replies/prices.toml"}


def execute(camera: Camera) -> None:
    """Fill the world. Answers whose words depend on measured numbers go to `measured/`."""
    camera.columns = 200  # headings of tables are stacked by the widths of numbers
    experiments(camera)
    rollouts(camera)
    with_models(camera)
    judgements(camera)
    on_a_server(camera)
    timings(camera)
    camera.columns = 80


def experiments(camera: Camera) -> None:
    """Sweeps, instruments, failures; one name three times, for the history."""
    for number in (1, 2, 3):
        camera.plain(f"measured/run-sweep-{number}", "run", "project/sweep.yaml")
    camera.json("executed/run-sweep", "run", "project/sweep.yaml")
    camera.plain("measured/run-profiled", "run", "project/profiled.yaml")
    camera.json("executed/run-raises", "run", "project/raises.yaml", "-v")
    camera.plain(
        "measured/run-built-in", "run", "specs/pragma_profile_baseline.yaml", "--set", "iterations.measured=3"
    )


def rollouts(camera: Camera) -> None:
    """Agents that need no model, on tasks that end in every way; step-by-step episodes."""
    camera.plain("executed/run-study", "run", "project/study.toml")
    camera.json("executed/run-study-again", "run", "project/study.toml")
    task = ("-t", "tasks/log-forensics", "--host-root", "--parallel", "1")
    camera.plain("executed/run-by-options", "run", *task, "-a", "oracle", "-a", "nop", "-n", "2", "-vv")
    camera.json("executed/eval", "eval", "study")
    camera.plain("measured/run-performance", "run", "specs/performance_tasks.toml")
    tracker = ("-a", "episode", "--agent-option", "file=specs/episodes/agents/tracker.py", "--host-root")
    camera.plain("executed/run-episode", "run", "-t", "specs/episodes/tasks/lost_parcel", *tracker, "-n", "2")


def with_models(camera: Camera) -> None:
    """The terminal agent and the judge, with models that follow a script."""
    with world.background("provider", "--script", "specs/replies/config-edit.toml") as address:
        env = {**PRICES, "PROCTOR_MODEL_BASE_URL": f"{address}/v1"}
        camera.plain("executed/run-agents", "run", "project/agents.toml", env=env)
        camera.both("executed/replay", "replay", "agents", "0", env=PRICES)
        camera.both("executed/models", "models", env=env)
        tight = ("--set", "budget_requests=2", "--set", "name=tight")
        camera.plain("executed/run-over-budget", "run", "project/agents.toml", *tight, env=env)
    camera.plain("executed/run-without-provider", "run", "project/agents.toml", env=env)
    with world.background("provider", "--script", "project/faults.toml") as address:
        env = {"PROCTOR_MODEL_BASE_URL": f"{address}/v1"}
        camera.plain(
            "executed/run-lost",
            "run",
            "project/agents.toml",
            "--set",
            "name=lost",
            "--set",
            "retries=0",
            env=env,
        )
    with world.background("provider", "--script", "project/judge.toml") as address:
        camera.plain(
            "executed/run-judged",
            "run",
            "project/judged.toml",
            env={"PROCTOR_MODEL_BASE_URL": f"{address}/v1"},
        )


def judgements(camera: Camera) -> None:
    """Commands that execute and then judge."""
    race = ("project/study.toml", "-n", "2", "--parallel", "1")
    camera.plain("executed/race", "race", "oracle", "nop", *race)
    camera.json("executed/race-other", "race", "run:study", "oracle", *race)
    camera.plain("executed/race-same", "race", "nop", "nop", *race)
    checks = ("--only", "oracle,nop,one_cpu,clock", "--rollouts", "2", "--repeats", "1", "--host-root")
    camera.plain("executed/vet", "vet", "tasks/median-bug", "project/odd_tasks", *checks, "--parallel", "1")
    camera.json(
        "executed/vet-one", "vet", "tasks/log-forensics", *checks, "--parallel", "1", "--out", "out/vet"
    )
    scenario = (
        "--scenario",
        "specs/episodes/scenario.yaml",
        "--episodes",
        "4",
        "--workers",
        "1",
        "--strict-spec",
    )
    camera.plain("measured/perf", "perf", *scenario, "--output-dir", "out/perf-episodes")
    camera.json(
        "measured/perf-tasks", "perf", "--episodes", "4", "--workers", "1", "--output-dir", "out/perf"
    )
    camera.plain("executed/keys-new", "keys", "new")
    camera.plain("executed/receipt-signed", "receipt", "study", "tmp/signed.zip", "--sign")
    camera.both("executed/verify-signed", "verify", "tmp/signed.zip")
    camera.both("executed/resume-complete", "resume", "log-forensics")
    camera.json("measured/aa", "aa", "project/study.toml", "--rollouts", "2", "--simulations", "100")


def on_a_server(camera: Camera) -> None:
    """A run that is submitted, and everything else that a server keeps."""
    with world.background("serve", "--port", "0") as address:
        env = {"PROCTOR_URL": address}
        task = ("-t", "tasks/config-edit", "--host-root", "--name", "remote")
        camera.plain("executed/remote-run", "run", *task, "-a", "oracle", env=env)
        for name, method, path, body in changes():
            camera.write_json(f"executed/api/{name}.json", ask(address, path, method, body))
        archive = WORLD / "tmp" / "task.zip"
        camera.run("tasks", "pack", "tasks/log-forensics", archive)
        camera.write_json("executed/api/upload-task.json", upload(address, archive))
        camera.both("executed/remote-ls", "ls", env=env)


def changes() -> list[tuple[str, str, str, Any]]:
    """Requests that change the server's store, by name."""
    spec = {"name": "nightly", "experiment": "pragma_profile"}
    return [
        ("project", "PUT", "/api/projects/lab", {"title": "The lab", "keep_days": 30}),
        ("secret", "PUT", "/api/secrets/API_KEY", {"value": "open sesame"}),
        ("token", "POST", "/api/tokens", {"name": "ci", "user": "ada", "scopes": ["read"]}),
        (
            "schedule",
            "POST",
            "/api/schedules",
            {
                "name": "nightly",
                "cron": "daily 02:00",
                "timezone": "Europe/Berlin",
                "spec": spec,
                "enabled": False,
            },
        ),
        ("webhook", "POST", "/api/webhooks", {"url": "https://chat.example/x", "events": ["run.finished"]}),
        ("plan", "POST", "/api/plan", {"spec": spec}),
        ("plan-wrong", "POST", "/api/plan", {"spec": {"experimnt": "pragma_profile"}}),
        ("labels", "PUT", "/api/trials/remote/0/labels", {"labels": ["odd"]}),
        ("comment", "POST", "/api/trials/remote/0/comments", {"text": "look here"}),
        ("note", "PATCH", "/api/runs/remote", {"notes": "seen"}),
        ("cancel-done", "POST", "/api/runs/remote/cancel", None),
        ("unknown", "POST", "/api/runs/nothing/cancel", None),
    ]


def upload(address: str, archive: Path) -> Any:
    """A task as a ZIP, as a form."""
    body = (
        b'--edge\r\nContent-Disposition: form-data; name="file"; filename="log-forensics.zip"\r\n'
        b"Content-Type: application/zip\r\n\r\n" + archive.read_bytes() + b"\r\n--edge--\r\n"
    )
    request = urllib.request.Request(f"{address}/api/tasks", body, method="POST")
    request.add_header("Content-Type", "multipart/form-data; boundary=edge")
    return ask(address, "/api/tasks", "POST", request=request)


def timings(camera: Camera) -> None:
    """Commands and versions of code against each other, with fixed numbers of runs."""
    commands = ("time", "-r", "6", "-w", "1", "sleep 0.02", "sleep 0.4", "--name", "short", "--name", "long")
    camera.plain("measured/time", *commands)
    camera.json("measured/time", *commands, "--document", "out/time.json", "--html", "out/time.html")
    sides = ("--a", "params:indent=null", "--b", "params:indent=2")
    ab = ("ab", "specs/json_encode.yaml", *sides, "--pairs", "8", "--no-confirm", "--cpu-budget", "2s")
    camera.json("measured/ab", *ab, "--output", "out/ab.json")
    camera.plain("measured/time-fails", "time", "-r", "4", "exit 3", "true")
