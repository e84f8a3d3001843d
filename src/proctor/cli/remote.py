"""Where a command finds its runs: in the store of this machine, or on a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proctor.client.client import Client
    from proctor.settings import Settings


def find_server() -> tuple[Settings, Client | None]:
    """The settings, and the server that commands talk to; with one, its address is that of the store."""
    from dataclasses import replace

    from proctor.settings import load_settings

    settings = load_settings()
    if not settings.url and not settings.login_file.expanduser().exists():
        return settings, None  # the usual case, without an import
    from proctor.client.credentials import server_of

    server = server_of(settings)
    if server is None:
        return settings, None
    from proctor.client.remote_store import use

    client = use(server, ca_bundle=settings.ca_bundle)
    return replace(settings, store=client.url), client


def reading_settings() -> Settings:
    """Settings whose store is the server's where commands talk to one; only for reading."""
    return find_server()[0]
