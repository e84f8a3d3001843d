"""`proctor logout`: forget the server and its token."""

from __future__ import annotations

import click

from proctor.errors import Exit


@click.command("logout")
def command() -> int:
    """Forget the server and the token of 'proctor login': commands use the store of this machine again."""
    from proctor.client.credentials import log_out
    from proctor.settings import load_settings

    url = log_out(load_settings().login_file.expanduser())
    print(f"Forgot {url} and its token." if url else "There was no server to forget.")
    return Exit.OK
