"""A server's home is its owner's alone: it holds keys, the store and the tasks of every project."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from proctor.settings import Settings

_log = logging.getLogger("proctor.server")
_OTHERS = 0o077


def close_to_others(settings: Settings) -> None:
    """Take from others what they may do with the home, the store and the blobs on this machine."""
    for path in _private(settings):
        try:
            mode = path.stat().st_mode & 0o7777
            if mode & _OTHERS:
                path.chmod(mode & ~_OTHERS)
        except FileNotFoundError:
            continue
        except OSError as error:
            _log.warning("%s: others may look into it (%s)", path, error.strerror)


def _private(settings: Settings) -> Iterator[Path]:
    yield settings.home
    if "://" not in settings.blobs_url:
        yield Path(settings.blobs_url)
    store = settings.store_url.removeprefix("sqlite:///")
    if "://" not in store:
        yield from (Path(store + end) for end in ("", "-wal", "-shm"))
