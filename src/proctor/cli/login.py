"""`proctor login` and `proctor logout`: which server commands talk to."""

from __future__ import annotations

import click

from proctor.errors import Exit


@click.command("login")
@click.argument("url", required=False)
@click.option("--token", envvar="PROCTOR_TOKEN", help="Token for the server. [asked for, or PROCTOR_TOKEN]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(url: str | None, token: str | None, as_json: bool) -> int:
    """Talk to the server at URL from now on; without URL, say which server that is.

    run, resume, cancel, ls, show, watch, logs and compare then work on the runs of the server, until 'proctor
    logout'. The token is kept in a file that only you may read. PROCTOR_URL and PROCTOR_TOKEN do the same for
    one command or one shell, and PROCTOR_URL=local means the store of this machine.

    Exit code 2: the token is wrong. 5: the server does not answer.
    """
    from proctor.client.credentials import Server, log_in, server_of
    from proctor.outgoing import is_loopback
    from proctor.settings import load_settings

    settings = load_settings()
    file = settings.login_file.expanduser()
    if url is None:
        return _show(server_of(settings), as_json=as_json)
    who = _who(url, token or "", ca_bundle=settings.ca_bundle)
    if who is None:
        token = token or click.prompt("Token", hide_input=True, err=True)
        who = _who(url, token or "", ca_bundle=settings.ca_bundle, must=True) or {}
    log_in(file, Server(url.rstrip("/"), token or ""))
    host = url.partition("://")[2].partition("/")[0]
    if url.startswith("http://") and not is_loopback(host):
        click.echo("Warning: without TLS your token crosses the network unencrypted.", err=True)
    return _said(url.rstrip("/"), who, as_json=as_json)


def _who(url: str, token: str, *, ca_bundle: str, must: bool = False) -> dict[str, object] | None:
    from proctor.client.client import Client
    from proctor.errors import StoreError, UsageError

    client = Client(url, token, ca_bundle=ca_bundle)
    client.connection.tries = 2
    try:
        return dict(client.session())
    except StoreError:
        raise
    except UsageError:
        if must or token:
            raise
        return None


def _show(server: object, *, as_json: bool) -> int:
    from proctor.client.credentials import Server

    if not isinstance(server, Server):
        if as_json:
            click.echo('{"server": null}')
        else:
            print("Commands use the store of this machine. 'proctor login URL' makes them use a server.")
        return Exit.OK
    who = _who(server.url, server.token, ca_bundle="", must=True) or {}
    return _said(server.url, who, as_json=as_json)


def _said(url: str, who: dict[str, object], *, as_json: bool) -> int:
    from proctor.cli.table import print_json, printable

    if as_json:
        print_json({"server": url, **who})
        return Exit.OK
    project = f", project {who['project']}" if who.get("project") else ""
    print(printable(f"Commands use {url} (as {who.get('user') or 'nobody in particular'}{project})."))
    return Exit.OK
