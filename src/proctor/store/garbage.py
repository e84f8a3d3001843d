"""Remove blobs that nothing refers to. Safe beside writers on other machines that share store and blobs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from proctor.store.blobs import Blobs
from proctor.store.store import Store

GRACE_S = 3600.0
"""A blob younger than this may be about to be referred to: it is put before its attempt is committed."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection removed and what remains."""

    removed: int = 0
    removed_bytes: int = 0
    kept: int = 0
    kept_bytes: int = 0


def collect_garbage(
    store: Store, blobs: Blobs, *, grace_s: float = GRACE_S, dry_run: bool = False
) -> Collected:
    """Remove every blob that nothing refers to and that was not put within the last `grace_s`.

    Ages are read before references. So a blob that was old, and is not referred to afterwards, has no writer
    who may still commit, unless somebody puts it again meanwhile: that makes it young, which `remove` sees.
    A `dry_run` counts what would go.
    """
    store.shared_layers.prune()
    listed = list(blobs.list())
    live = store.live_blobs()
    removed = [
        each
        for each in listed
        if each.age_s >= grace_s
        and each.digest not in live
        and (dry_run or blobs.remove(each.digest, unless_younger_s=grace_s))
    ]
    removed_bytes = sum(each.size_bytes for each in removed)
    return Collected(
        removed=len(removed),
        removed_bytes=removed_bytes,
        kept=len(listed) - len(removed),
        kept_bytes=sum(each.size_bytes for each in listed) - removed_bytes,
    )


def remove_orphans(store: Store, blobs: Blobs, orphans: Collection[str], *, grace_s: float) -> int:
    """Of the blobs of a run that was deleted, remove those that still nothing refers to; how many."""
    if not orphans:
        return 0
    live = store.live_blobs()
    return sum(blobs.remove(digest, unless_younger_s=grace_s) for digest in orphans if digest not in live)
