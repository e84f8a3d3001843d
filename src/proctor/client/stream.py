"""Server-sent events, read to their end and opened again where they broke off."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from proctor.client.connection import Connection
from proctor.errors import StoreError

SILENT_S = 45.0
"""The server says something every 15 seconds; after this time without a word the line is dead."""
PATIENCE_S = 120.0
"""How long a server may be away: it is started again, and the stream goes on."""
_LAST_PAUSE_S = 3.0


@dataclass(frozen=True, slots=True)
class Told:
    """One message of a stream."""

    id: str
    kind: str
    data: Any


def messages(lines: Iterable[bytes]) -> Iterator[Told]:
    """The messages of a stream; what was cut off at its end is left out."""
    found: dict[str, str] = {}
    last = ""
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not line:
            if "data" in found:
                last = found.get("id", last)
                yield Told(last, found.get("event", "message"), json.loads(found["data"]))
            found = {}
            continue
        name, _, value = line.partition(":")
        if name:
            value = value.removeprefix(" ")
            found[name] = f"{found['data']}\n{value}" if name == "data" and "data" in found else value


def follow(
    connection: Connection, path: str, params: Mapping[str, Any], after: str = ""
) -> Iterator[Told | None]:
    """Messages for ever; None each time the stream was opened, also when nothing came.

    Nothing is lost when the line breaks: it is opened again after the last message that came. StoreError when
    the server stays away.
    """
    last, gone_at, pause_s = after, None, 0.1
    while True:
        try:
            headers = {"Last-Event-ID": last} if last else {}
            with connection.open("GET", path, params=params, headers=headers, timeout_s=SILENT_S) as stream:
                gone_at, pause_s = None, 0.1
                yield None
                for each in messages(stream):
                    last = each.id or last
                    yield each
        except StoreError:
            gone_at = gone_at or time.monotonic()
            if time.monotonic() - gone_at > PATIENCE_S:
                raise
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, _LAST_PAUSE_S)
