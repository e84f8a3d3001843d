"""A scratch folder for benchmarks of sandboxes, which is gone afterwards also for an ordinary user."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proctor.sandbox.bubblewrap import Bubblewrap


@contextmanager
def scratch() -> Iterator[Path]:
    """Layers belong to the ids of the sandboxes: whoever is not root needs the keeper to remove them."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        try:
            yield home
        finally:
            if os.geteuid():
                asyncio.run(_remove_layers(home))


async def _remove_layers(home: Path) -> None:
    with tempfile.TemporaryDirectory() as other:
        backend = Bubblewrap(Path(other))
        keeper = await backend.keeper()
        try:
            for found in [*home.glob(".proctor*"), *home.glob("*/.proctor*")]:
                folder = os.open(found.parent, os.O_RDONLY)
                await keeper.remove(found.name, folder)
                os.close(folder)
        finally:
            await backend.close()
