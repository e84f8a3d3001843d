"""An example or two for each command, shown at the end of its `--help`. A test parses every one of them."""

from __future__ import annotations

import click

EXAMPLES = {
    "run": (
        "proctor run specs/sorting.yaml",
        "proctor run specs/sorting.yaml --set iterations.measured=20 -v",
    ),
    "plan": ("proctor plan specs/sorting.yaml",),
    "time": (
        "proctor time 'sort words.txt' 'sort --parallel=1 words.txt'",
        "proctor time -w 3 -r 20 'make -s'",
        "proctor time -s 'import json' 'json.loads(\"[1, 2]\")'",
        "proctor time -s 'x = list(range(99))' 'sorted(x)' 'x.copy().sort()'",
    ),
    "ab": (
        "proctor ab specs/sorting.yaml",
        "proctor ab specs/sorting.yaml --a v1.2 --b . --margin 2%",
        "proctor ab specs/sorting.yaml --a params:size=100 --b params:size=200",
        "proctor ab specs/sorting.yaml --until-settled --time-budget 5m",
    ),
    "race": (
        "proctor race oracle nop specs/tasks.toml -n 10",
        "proctor race run:latest terminal/openai/gpt-5.2 specs/tasks.toml --json",
    ),
    "publish": (
        "proctor publish site",
        "proctor publish site --series sorting --last 50",
    ),
    "resume": ("proctor resume latest", "proctor resume sorting --errors"),
    "worker": ("proctor worker --run latest --parallel 4", "proctor worker --until-idle"),
    "cancel": ("proctor cancel latest",),
    "db": (
        "proctor db check --deep",
        "proctor db backup store.backup --blobs blobs.backup",
        "proctor db gc --dry-run",
    ),
    "db upgrade": ("proctor db upgrade",),
    "db backup": ("proctor db backup store.backup --blobs blobs.backup",),
    "db restore": ("proctor db restore store.backup --blobs blobs.backup",),
    "db check": ("proctor db check --deep",),
    "db worker-role": ("proctor db worker-role proctor_worker",),
    "db gc": ("proctor db gc --dry-run",),
    "perf": ("proctor perf --episodes 100 --workers 4",),
    "serve": (
        "proctor serve --open",
        "proctor serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem --allow-host bench.example",
    ),
    "login": ("proctor login https://bench.example", "proctor login"),
    "logout": ("proctor logout",),
    "queue": ("proctor queue", "proctor queue --slots 8 --json", "proctor queue --slots 8 --every 30"),
    "load": ("proctor load --users 25 --runs 10", "proctor load --oracle 750 --host-root --json"),
    "view": ("proctor view", "proctor view latest"),
    "agents": ("proctor agents", "proctor agents --json", "proctor agents install claude-code"),
    "agents install": (
        "proctor agents install claude-code",
        "proctor agents install codex --version 0.166.0",
    ),
    "agents remove": ("proctor agents remove codex",),
    "models": ("proctor models", "proctor models --json"),
    "replay": ("proctor replay latest", "proctor replay latest 0 --recorded-speed -v"),
    "provider": (
        "proctor provider --script replies.toml",
        "proctor provider --script replies.toml --port 8080 --ledger sold.jsonl",
    ),
    "tasks": ("proctor tasks check tasks/hello-world",),
    "tasks check": ("proctor tasks check tasks --strict",),
    "tasks pack": ("proctor tasks pack tasks/hello-world hello-world.zip",),
    "datasets": ("proctor datasets ls",),
    "datasets ls": ("proctor datasets ls",),
    "datasets pull": ("proctor datasets pull hello@1.0",),
    "datasets rm": ("proctor datasets rm hello@1.0",),
    "vet": ("proctor vet tasks/hello-world", "proctor vet tasks --only oracle,nop --parallel 4"),
    "eval": ("proctor eval latest", "proctor eval latest --judge openrouter/openai/gpt-5-mini"),
    "images": ("proctor images ls",),
    "images ls": ("proctor images ls",),
    "images pull": ("proctor images pull ubuntu:24.04",),
    "images warm": ("proctor images warm specs/sample_tasks.toml", "proctor images warm latest --json"),
    "images import": ("proctor images import debian.tar --name debian:bookworm",),
    "images gc": ("proctor images gc --days 7",),
    "compare": ("proctor compare latest~1 latest", "proctor compare before.json after.json --margin 5%"),
    "gate": (
        "proctor gate latest --baseline main",
        "proctor gate latest --rules gates.yaml --junit gate.xml",
    ),
    "baseline": ("proctor baseline pin main latest --reason 'release 1.2'",),
    "baseline list": ("proctor baseline list",),
    "baseline pin": ("proctor baseline pin main latest --reason 'release 1.2'",),
    "baseline rm": ("proctor baseline rm main",),
    "baseline show": ("proctor baseline show main",),
    "baseline update": ("proctor baseline update main latest --reason 'faster parser'",),
    "aa": ("proctor aa latest", "proctor aa specs/study.toml --rollouts 10 --out noise.html"),
    "selftest": ("proctor selftest specs/sorting.yaml --slow 5%",),
    "leaderboard": (
        "proctor leaderboard latest",
        "proctor leaderboard nightly-1 nightly-2 --html board.html",
    ),
    "history": ("proctor history sorting --html history.html",),
    "ls": ("proctor ls", "proctor ls --status running", "proctor ls --name 'sort*' --limit 5"),
    "show": ("proctor show latest", "proctor show sorting --trials"),
    "summarize": ("proctor summarize latest",),
    "logs": (
        "proctor logs latest",
        "proctor logs latest 0 --follow",
        "proctor logs latest 'hello-world/oracle#1' --log verifier --tail 20",
    ),
    "watch": ("proctor watch latest",),
    "report": ("proctor report latest --format html --open",),
    "rm": ("proctor rm latest", "proctor rm --older-than 30 --yes"),
    "export": ("proctor export latest", "proctor export latest tables --format csv"),
    "import": ("proctor import sorting-20260101T000000-aaaaaa",),
    "receipt": ("proctor receipt latest", "proctor receipt latest sorting.receipt.zip --sign"),
    "verify": (
        "proctor verify sorting-20260101T000000-aaaaaa.receipt.zip",
        "proctor verify sorting.receipt.zip --trust alice.pub",
    ),
    "keys": ("proctor keys new", "proctor keys show"),
    "keys new": ("proctor keys new", "proctor keys new nightly"),
    "keys ls": ("proctor keys ls",),
    "keys show": ("proctor keys show nightly",),
    "list": ("proctor list", "proctor list sorting --experiments experiments.d"),
    "new": ("proctor new experiment parsing", "proctor new task fix-the-bug"),
    "new experiment": ("proctor new experiment parsing",),
    "new task": ("proctor new task fix-the-bug",),
    "doctor": ("proctor doctor",),
    "completion": ("proctor completion bash",),
}
"""Command, or group and command → lines to type."""


def with_examples(command: click.Command, name: str) -> None:
    """Put the examples at the end of the command's help, and of the commands in it."""
    lines = EXAMPLES.get(name, ())
    if lines and not command.epilog:
        title = "Example:" if len(lines) == 1 else "Examples:"
        command.epilog = "\n".join(("\b", title, *(f"  {line}" for line in lines)))
    if isinstance(command, click.Group):
        for child, found in command.commands.items():
            with_examples(found, f"{name} {child}")
