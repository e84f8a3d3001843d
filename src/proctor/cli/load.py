"""`proctor load`: many people at once on a server, and what becomes of their runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proctor.errors import Exit, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proctor.client.client import Client
    from proctor.client.load import Report

MOST_RUNS, MOST_USERS, MOST_ROLLOUTS, MOST_S = 10_000, 500, 100, 7200
_TASK = {
    "task.toml": 'version = "1.0"\n[metadata]\ndescription = "Write a word into a file."\n'
    '[environment]\ndocker_image = "debian:12-slim"\n',
    "instruction.md": "Write hello into /tmp/word.\n",
    "tests/test.sh": "#!/bin/bash\nmkdir -p /logs/verifier\n"
    'if [ "$(cat /tmp/word)" = hello ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n',
    "solution/solve.sh": "#!/bin/bash\necho hello > /tmp/word\n",
}


@click.command("load")
@click.option("--url", help="Address of the server. [PROCTOR_URL, 'proctor login', or http://127.0.0.1:8640]")
@click.option("--users", type=click.IntRange(1, MOST_USERS), default=25, show_default=True, help="People.")
@click.option(
    "--runs", type=click.IntRange(1, MOST_RUNS), default=10, show_default=True, help="Runs of each of them."
)
@click.option(
    "--oracle",
    type=click.IntRange(1, MOST_RUNS),
    metavar="N",
    help="N runs of the author's solution in all, in place of --runs.",
)
@click.option(
    "-n",
    "--rollouts",
    type=click.IntRange(1, MOST_ROLLOUTS),
    default=1,
    show_default=True,
    help="In each run.",
)
@click.option("-a", "--agent", default="oracle", show_default=True, help="Agent of the runs.")
@click.option("-m", "--model", help="Model of the agent; it costs what it costs.")
@click.option("-t", "--task", type=click.Path(path_type=Path), help="Task folder or ZIP. [a tiny one]")
@click.option("--host-root", is_flag=True, help="Use the server's own system in place of the task's image.")
@click.option(
    "--readers", type=click.IntRange(0, 100), default=2, show_default=True, help="People who only read."
)
@click.option(
    "--seconds",
    type=click.IntRange(1, MOST_S),
    default=600,
    show_default=True,
    help="Time limit; what has not ended then is reported.",
)
@click.option("--this-server-is-mine", "mine", is_flag=True, help="Needed for any server but loopback's.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    url: str | None,
    task: Path | None,
    users: int,
    runs: int,
    oracle: int | None,
    mine: bool,
    as_json: bool,
    **load: Any,
) -> int:
    """Submit many runs to a server at once, read meanwhile, and report rates, latencies and losses.

    Exit code 0: every run ended, none is lost and none is there twice, and the server never failed. 1: one of
    these does not hold. 2: the server is not on loopback and --this-server-is-mine is missing. 5: it does not
    answer.
    """
    import asyncio

    from proctor.cli.table import print_json
    from proctor.client.load import Driver, Load
    from proctor.settings import load_settings

    settings = load_settings()
    client = _client(url, mine=mine)
    total = oracle or users * runs
    if total > MOST_RUNS:
        raise UsageError(f"{total} runs are too many at once; at most {MOST_RUNS}")
    chosen = Load(users=users, runs=total, **({**load, "agent": "oracle"} if oracle else load))
    upload = _upload(client, task)

    def say(text: str) -> None:
        if not as_json:
            print(text, file=sys.stderr, flush=True)

    say(f"{total} runs by {users} users on {client.url}")
    driver = Driver(client.url, client.connection.token, chosen, ca_bundle=settings.ca_bundle)
    report = asyncio.run(driver.run(upload, say))
    if as_json:
        print_json(report.to_mapping())
    else:
        _print(report)
    return Exit.OK if report.good else Exit.WORSE


def _client(url: str | None, *, mine: bool) -> Client:
    from urllib.parse import urlsplit

    from proctor.client.client import Client
    from proctor.client.credentials import Server, server_of
    from proctor.outgoing import is_loopback
    from proctor.settings import load_settings

    settings = load_settings()
    known = server_of(settings)
    server = known or Server("http://127.0.0.1:8640", settings.token)
    if url and url.rstrip("/") != server.url:
        server = Server(url, settings.token)
    if not is_loopback(urlsplit(server.url).hostname or "") and not mine:
        raise UsageError(
            f"{server.url} is not on this machine; put load only on a server that is yours, and say so with "
            "--this-server-is-mine"
        )
    return Client(server.url, server.token, ca_bundle=settings.ca_bundle)


def _upload(client: Client, task: Path | None) -> str:
    import tempfile

    from proctor.tasks.archive import pack

    with tempfile.TemporaryDirectory(prefix="proctor-load-") as place:
        if task is not None and task.is_file():
            return str(client.upload(task, task.name)["id"])
        folder = task or _written(Path(place, "load"), _TASK)
        if not folder.is_dir():
            raise UsageError(f"{folder}: no such task folder or ZIP")
        archive = Path(place, "task.zip")
        pack(folder, archive)
        return str(client.upload(archive, f"{folder.resolve().name}.zip")["id"])


def _written(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if name.endswith(".sh") else 0o644)
    return folder


def _print(report: Report) -> None:
    from proctor.cli.table import print_table, printable, seconds

    rates = report.to_mapping()["rates"]
    verdict = "nothing was lost or doubled" if report.good else "something went wrong, see below"
    refused = report.load["runs"] - report.submitted
    print(
        f"{report.ended} of {report.submitted} runs ended in {seconds(report.wall_s)}: {verdict}\n"
        f"  rates      {rates['runs_per_s']:g} runs/s, {rates['trials_per_s']:g} trials/s, "
        f"{rates['requests_per_s']:g} requests/s\n"
        f"  outcomes   {', '.join(f'{n} {name}' for name, n in report.outcomes.items()) or 'none'}\n"
        f"  not taken {refused}, lost {len(report.lost)}, doubled {len(report.doubled)}, "
        f"unfinished {len(report.unfinished)}, requests sent again {report.retried}"
    )
    if report.refused:
        for status, number in report.refused.items():
            print(f"  refused    {number} × HTTP {status}: {printable(report.refusals.get(status, ''))}")
    print()
    rows = [
        (what, int(found["count"]), *(f"{found[f'p{at}_ms']:g} ms" for at in (50, 95, 99)))
        for what, found in report.latencies.items()
    ]
    print_table(("request", "count", "p50", "p95", "p99"), rows, right=(1, 2, 3, 4))
