"""`proctor worker`: execute trials of runs that other processes coordinate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from proctor.runs.secrets import Grant
    from proctor.settings import Settings

_DRAINING = "ending: what runs is finished and nothing more is taken; a second signal stops it now"


@click.command(name="worker")
@click.option("--run", metavar="RUN", help="Work at this run only: an id, a name or 'latest'.")
@click.option(
    "--parallel", type=click.IntRange(1, 1024), default=1, show_default=True, help="Trials at a time."
)
@click.option(
    "--autoscale",
    metavar="MIN,MAX",
    help="Begin with MIN trials at a time, and take up to MAX while the machine has room.",
)
@click.option(
    "--label",
    "labels",
    metavar="WORD",
    multiple=True,
    help="A label of this worker, for runs whose 'labels' ask for it. May be repeated.",
)
@click.option("--until-idle", is_flag=True, help="End when no run has a trial to take.")
def command(
    run: str | None, parallel: int, autoscale: str | None, labels: tuple[str, ...], until_idle: bool
) -> int:
    """Take trials of running runs of the store, and execute them.

    A run is started by 'proctor run', 'proctor resume' or a server, whose process writes its folder and its
    report. Any number of workers may help, on any machine that has the addresses of the store and the blobs:
    what a run is made from is stored with it. With a broker set workers are told of work at once, and show
    up in Celery's own tools; else they look for it twice a second. A worker that is killed loses nothing: its
    trials are tried again. With the settings 'url' and 'token' it asks that server for the keys of providers.

    A worker has the label arch=MACHINE, and its sandboxes are labels too. Timings run alone in a worker.

    Ctrl-C or a termination once finishes what runs; twice stops now. Exit code 0: idle or stopped. 2: RUN
    cannot be executed here.
    """
    import asyncio
    import gc
    import sys

    from proctor.engine.stop import Stop
    from proctor.errors import Exit
    from proctor.runs.process_resources import Resources
    from proctor.runs.serve import Server
    from proctor.settings import load_settings
    from proctor.spec.grammar import wrong_label

    least, most = _places(parallel, autoscale)
    for label in labels:
        if problem := wrong_label(label):
            raise click.UsageError(f"--label: {problem}")
    settings = load_settings()
    if settings.broker:
        from proctor.engine.celery.app import check_broker

        check_broker(settings.broker)

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    async def go() -> int:
        stop = Stop(lambda times: say(_DRAINING) if times == 1 else None)
        server = Server(
            resources, run, most, stop, say, labels=labels, least=least, grant_of=_granting(settings)
        )
        with stop.on_signals(terminations=1):
            await server.serve(until_idle=until_idle)
        return server.ended

    gc.set_threshold(10_000, 10, 10)  # hundreds of trials at once are no garbage: look at them seldom
    with Resources(settings) as resources:
        ended = asyncio.run(go())
    say(f"{ended} {'attempt' if ended == 1 else 'attempts'} executed")
    return Exit.OK


def _places(parallel: int, autoscale: str | None) -> tuple[int, int]:
    """The fewest and the most trials at a time; the fewest is 0 where their number does not change."""
    if autoscale is None:
        return 0, parallel
    least, comma, most = autoscale.partition(",")
    if not (comma and least.isdecimal() and most.isdecimal() and 1 <= int(least) <= int(most) <= 1024):
        raise click.UsageError("--autoscale takes the fewest and the most trials at a time, such as 2,16")
    return int(least), int(most)


def _granting(settings: Settings) -> Callable[[str], Grant]:
    """Asks the server of the settings for the keys of a run; nothing where no server or token is set."""
    from proctor.runs.secrets import Grant

    if not settings.token or settings.url in {"", "local"}:
        return lambda _: Grant()
    from proctor.client.client import Client

    client = Client(settings.url, settings.token, ca_bundle=settings.ca_bundle)

    def ask(run_id: str) -> Grant:
        found = client.run_secrets(run_id)
        return Grant(found["secrets"], found.get("providers", {}))  # older servers name no providers

    return ask
