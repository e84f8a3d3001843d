"""Whether a store is whole: its rows, and the blobs that they refer to."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass

from proctor.errors import NotFoundError
from proctor.store.blobs import Blobs, DamagedBlobError
from proctor.store.store import Store

_FEW = 20
"""So many blobs are asked for one by one; of more a list of all is quicker."""
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Soundness:
    """What was looked at, and what is wrong."""

    problems: tuple[str, ...]
    """Of the rows."""
    referred: int
    """Blobs that runs refer to."""
    missing: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    """Blobs whose content is not what it was; empty unless all were read."""

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.problems or self.missing or self.damaged)


def examine(store: Store, blobs: Blobs, *, deep: bool = False) -> Soundness:
    """Look at everything; with `deep` every blob is read. Others may go on working meanwhile."""
    problems = store.check()
    wanted = store.live_blobs()
    gone = set(missing_blobs(blobs, wanted))
    damaged = [digest for digest in sorted(wanted - gone) if deep and not _is_sound(blobs, digest)]
    if gone or damaged:
        # A run may have been removed since: what nothing refers to any more is not missing.
        still = store.live_blobs()
        gone, damaged = gone & still, [digest for digest in damaged if digest in still]
    return Soundness(tuple(problems), len(wanted), tuple(sorted(gone)), tuple(damaged))


def missing_blobs(blobs: Blobs, wanted: Collection[str]) -> list[str]:
    """Which of these are not there, in order."""
    if not blobs.remote or len(wanted) <= _FEW:
        found = {digest for digest in wanted if blobs.has(digest)}
    else:
        found = {each.digest for each in blobs.list()}
    if blobs.remote and not wanted:
        blobs.has("0" * 64)  # whether it can be reached at all
    return sorted(set(wanted) - found)


def _is_sound(blobs: Blobs, digest: str) -> bool:
    hasher = hashlib.sha256()
    try:
        with blobs.open(digest) as file:
            while piece := file.read(_PIECE_BYTES):
                hasher.update(piece)
    except (NotFoundError, DamagedBlobError):
        return False
    return hasher.hexdigest() == digest
