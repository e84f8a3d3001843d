"""Remove layers that were not used for long, and the least recently used ones when there are too many.

What a living process uses stays, and so do images that a person imported or pulled, unless requested.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass

from proctor.sandbox.image.layers import LayerStore
from proctor.sandbox.image.references import References

MAX_AGE_S = 30 * 86_400.0
MAX_BYTES = 20 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What was removed, and what is left."""

    removed: int
    removed_bytes: int
    kept: int
    kept_bytes: int
    forgotten: tuple[str, ...] = ()
    """Names of images that are no longer here."""


async def collect_garbage(
    store: LayerStore,
    references: References,
    *,
    now: float,
    max_age_s: float = MAX_AGE_S,
    max_bytes: int = MAX_BYTES,
    imported: bool = False,
) -> Collected:
    """Remove layers older than the age, then the oldest until the rest fits; with `imported`, images too."""
    await store.open()
    sizes = await _sizes(store)
    trash: list[str] = []
    removed_bytes = 0
    with store.collecting():
        spared = store.in_use()
        if not imported:
            wanted = [image for image in references.all() if image.kept or image.source != "registry"]
            spared |= {layer for image in wanted for layer in image.layers}
        left = sum(sizes.values())
        for key in sorted(sizes, key=store.last_used):
            if key in spared or (now - store.last_used(key) <= max_age_s and left <= max_bytes):
                continue
            with contextlib.suppress(OSError):
                trash.append(store.discard(key))
                left -= sizes[key]
                removed_bytes += sizes[key]
    for name in trash:
        await store.remove(name)
    _remove_old_downloads(store, now - max_age_s)
    return Collected(
        removed=len(trash),
        removed_bytes=removed_bytes,
        kept=len(sizes) - len(trash),
        kept_bytes=sum(sizes.values()) - removed_bytes,
        forgotten=tuple(_forget(store, references)),
    )


def _remove_old_downloads(store: LayerStore, before: float) -> None:
    """What a pull left unfinished and was not continued for so long."""
    for file in store.downloads.iterdir():
        with contextlib.suppress(OSError):
            if file.stat().st_mtime <= before:
                file.unlink()


def _forget(store: LayerStore, references: References) -> Iterable[str]:
    for image in list(references.all()):
        if not all((store.layers / each).is_dir() for each in image.layers):
            references.remove(image.reference)
            yield image.reference


async def _sizes(store: LayerStore) -> dict[str, int]:
    """Bytes on disk of each layer; only the keeper may look into all of them."""
    keeper = await store.keeper()
    folder = os.open(store.layers, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    listed = os.memfd_create("sizes", os.MFD_CLOEXEC)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        script = "cd /proc/self/fd/3 && exec du --summarize --block-size=1 -- *"
        await keeper.run(["sh", "-c", script], [null, listed, null, folder])
        text = os.pread(listed, os.fstat(listed).st_size, 0).decode(errors="replace")
    finally:
        for fd in (folder, listed, null):
            os.close(fd)
    rows = [line.split("\t", 1) for line in text.splitlines() if "\t" in line]
    return {name: int(size) for size, name in rows if size.isdigit() and (store.layers / name).is_dir()}
