"""`proctor view`: the page on the local store, for reading."""

from __future__ import annotations

import click


@click.command(name="view")
@click.argument("run", required=False)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port; default: any free one.")
@click.option("--no-open", is_flag=True, help="Print the address and open no browser.")
def command(run: str | None, port: int, no_open: bool) -> int:
    """Show the runs of this store, or one RUN, in the browser. Nothing can be changed there.

    Ctrl-C ends it, with exit code 0. Exit code 2: there is no such run.
    """
    from proctor.errors import Exit
    from proctor.server.app import create_app
    from proctor.server.serving import Address, serve
    from proctor.server.state import Mode
    from proctor.settings import load_settings
    from proctor.store.open import open_store

    settings = load_settings()
    path = "/"
    if run:
        with open_store(settings.store_url, create=False) as store:
            path = f"/runs/{store.run(run).id}"
    bound = Address(port=port).listen()

    def ready(where: str) -> None:
        print(f"{where}{path}", flush=True)
        if not no_open:
            click.launch(f"{where}{path}")

    serve(create_app(settings, Mode.VIEW), bound, ready=ready)
    return Exit.OK
