"""`proctor worker`: execute trials of runs that other processes coordinate."""

from __future__ import annotations

import click


@click.command(name="worker")
@click.option("--run", metavar="RUN", help="Work at this run only: an id, a name or 'latest'.")
@click.option(
    "--parallel", type=click.IntRange(1, 1024), default=1, show_default=True, help="Trials at a time."
)
@click.option("--until-idle", is_flag=True, help="End when no run has a trial to take.")
def command(run: str | None, parallel: int, until_idle: bool) -> int:
    """Take trials of running runs of the store, and execute them next to those who run them already.

    A run is started by 'proctor run' or 'proctor resume', whose process writes its folder and its report. Any
    number of workers may help, on any machine that has the addresses of the store and the blobs: what a run
    is made from is stored with it. A worker that is killed loses nothing: its trials are tried again.

    Ctrl-C once finishes what runs; twice stops now. Exit code 0: idle or stopped. 2: RUN cannot be executed
    here.
    """
    import asyncio
    import sys

    from proctor.engine.stop import Stop
    from proctor.errors import Exit
    from proctor.runs.serve import Server
    from proctor.settings import load_settings

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    async def go() -> int:
        stop = Stop()
        server = Server(load_settings(), run, parallel, stop, say)
        with stop.on_signals():
            await server.serve(until_idle=until_idle)
        return server.ended

    ended = asyncio.run(go())
    say(f"{ended} {'attempt' if ended == 1 else 'attempts'} executed")
    return Exit.OK
