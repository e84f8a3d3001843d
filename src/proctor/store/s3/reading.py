"""Read a large blob in parts, as they are asked for: the end of a log of gigabytes costs one request."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

Fetch = Callable[[int, int], bytes]
"""Some bytes of the blob, by offset and length."""
AHEAD_BYTES = 256 << 10
"""What is fetched at least: most who read a part read on."""


class PartsReader(io.RawIOBase):
    """A blob as a file that can be read from anywhere. What is read in parts has no digest to hold it to."""

    def __init__(self, fetch: Fetch, size_bytes: int) -> None:
        self._fetch = fetch
        self._size = size_bytes
        self._at = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place; nothing is fetched yet."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        """The place."""
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        """Fill the buffer from the place on."""
        target = memoryview(buffer)
        length = min(len(target), self._size - self._at)
        if length <= 0:
            return 0
        data = self._fetch(self._at, length)
        target[: len(data)] = data
        self._at += len(data)
        return len(data)
