"""Layers that one machine built and others may take: the name of what went into them → a blob.

Names and contents are digests, and whoever takes a layer checks its content.
"""

from __future__ import annotations

from typing import NamedTuple

from proctor.store.database import Database

MAX_AGE_S = 30 * 86_400.0
MAX_BYTES = 50 << 30
_FIND = "SELECT content, digest, size_bytes FROM shared_layers WHERE key = :key AND platform = :platform"
_USED = "UPDATE shared_layers SET used_at = {now} WHERE key = :key AND platform = :platform"
_ADD = """
INSERT INTO shared_layers (key, platform, content, digest, size_bytes, used_at)
VALUES (:key, :platform, :content, :digest, :size_bytes, {now}) ON CONFLICT (key, platform) DO NOTHING
"""
_DROP = "DELETE FROM shared_layers WHERE key = :key AND platform = :platform"
_ALL = "SELECT key, platform, size_bytes, {now} - used_at FROM shared_layers ORDER BY used_at DESC, key"


class SharedLayer(NamedTuple):
    """A layer as a blob."""

    content: str
    """sha256 of the unpacked archive."""
    digest: str
    """Of the blob, in which it is compressed."""
    size_bytes: int


class SharedLayers:
    """The shared layers of one store."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def find(self, key: str, platform: str) -> SharedLayer | None:
        """The layer of that name for that platform; it counts as just used."""
        place = {"key": key, "platform": platform}
        found = self._db.read(_FIND, place)
        if not found:
            return None
        with self._db.write() as tx:
            tx.change(_USED, place)
        return SharedLayer(str(found[0][0]), str(found[0][1]), int(found[0][2]))

    def add(self, key: str, platform: str, layer: SharedLayer) -> None:
        """Offer a layer. Who was first stays: others may have built on it."""
        with self._db.write() as tx:
            tx.change(_ADD, {"key": key, "platform": platform, **layer._asdict()})

    def drop(self, key: str, platform: str) -> None:
        """Offer it no longer: its blob is gone or damaged."""
        with self._db.write() as tx:
            tx.change(_DROP, {"key": key, "platform": platform})

    def prune(self, *, max_age_s: float = MAX_AGE_S, max_bytes: int = MAX_BYTES) -> int:
        """Offer no longer what nobody took for so long, nor the oldest of what is too much; how many.

        Their blobs go with the next collection; who is just reading one reads it to the end.
        """
        kept = dropped = 0
        for key, platform, size, age_s in self._db.read(_ALL):
            if age_s > max_age_s or kept + int(size) > max_bytes:
                self.drop(str(key), str(platform))
                dropped += 1
            else:
                kept += int(size)
        return dropped
