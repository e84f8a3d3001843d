"""`proctor serve`: the API and the page, and what executes the runs that are submitted to it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from proctor.server.serving import Certificate
    from proctor.settings import Settings

_File = click.Path(path_type=Path, dir_okay=False)


@click.command(name="serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8640, show_default=True, help="Port; 0: any free one."
)
@click.option("--tokens", is_flag=True, help="Require tokens on loopback too.")
@click.option(
    "--allow-host", "hosts", metavar="NAME", multiple=True, help="A host name under which to answer."
)
@click.option("--tls-cert", type=_File, help="Certificate (PEM) for HTTPS.")
@click.option("--tls-key", type=_File, help="Private key (PEM) of the certificate.")
@click.option("--open", "open_page", is_flag=True, help="Open the page in a browser.")
def command(
    host: str,
    port: int,
    tokens: bool,
    hosts: tuple[str, ...],
    tls_cert: Path | None,
    tls_key: Path | None,
    open_page: bool,
) -> int:
    """Serve the API and the web page on this store, and execute the runs that are submitted.

    On loopback, the default, one person works without tokens. On any other address every request needs a
    token; the first start prints one for the administrator.

    SIGTERM or Ctrl-C ends it within five seconds, with exit code 0: trials that run are stopped and done when
    the server starts again. Exit code 2: the address, the certificate or the settings cannot be used.
    """
    from proctor.errors import Exit
    from proctor.server.app import Options, create_app
    from proctor.server.serving import Address, serve
    from proctor.server.state import Mode
    from proctor.settings import load_settings

    settings, address = load_settings(), Address(host, port)
    certificate = _certificate(tls_cert, tls_key)
    mode = Mode.LOCAL if address.loopback and not tokens else Mode.TOKENS
    bound = address.listen()
    _introduce(settings, needs_tokens=mode is Mode.TOKENS, plain=certificate is None and not address.loopback)
    own = () if host in {"0.0.0.0", "::"} else (host,)  # noqa: S104 - compared, not bound
    options = Options(hosts=(*hosts, *own), secure=certificate is not None, engine=True)

    def ready(where: str) -> None:
        print(where, flush=True)
        if open_page:
            click.launch(where)

    serve(create_app(settings, mode, options), bound, ready=ready, certificate=certificate)
    return Exit.OK


def _certificate(cert: Path | None, key: Path | None) -> Certificate | None:
    from proctor.server.serving import Certificate

    if (cert is None) != (key is None):
        raise click.UsageError("--tls-cert and --tls-key belong together")
    if cert is None or key is None:
        return None
    found = Certificate(cert, key)
    found.check()
    return found


def _introduce(settings: Settings, *, needs_tokens: bool, plain: bool) -> None:
    """Say whom the server answers, and print the first administrator's token, once."""
    from proctor.server.auth.tokens import first_admin
    from proctor.store.open import open_store

    if not needs_tokens:
        print("One person, no tokens: whoever may use this machine's loopback may do everything.", flush=True)
        return
    with open_store(settings.store_url) as store:
        secret = first_admin(store)
    print("Every request needs a token.", flush=True)
    if secret:
        print(f"The administrator's token, shown this once: {secret}", flush=True)
    if plain:
        print(
            "Warning: without TLS tokens cross the network unencrypted; give --tls-cert and --tls-key, or "
            "put a proxy with TLS before this server.",
            flush=True,
        )
