"""What decides where the objects of a measured process lie: the padding of its heap, and its bytecode.

Address randomisation moves whole pages; where in a page an object begins, and with it which part of a cache
it uses, follows from what was allocated before. The worker loads this file by its path.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_POOL_BYTES = 16_384
"""What Python's allocator fills with objects of one size, since 3.10; more would repeat positions."""
_LARGEST_BYTES = 512
"""Larger objects are left to malloc."""
_STEP_BYTES = 16
_HEADER_BYTES = 33
"""Of an object of type bytes."""
_BLOCKS = 4
_BLOCK_BYTES = 16_384

_padding: list[object] = []


def pad_heap(seed: int) -> None:
    """Fill up to one pool of each size, and allocate a few larger blocks. It takes 0.3 ms."""
    state = seed

    def draw(below: int) -> int:
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (state >> 33) % below

    _padding.extend([object() for _ in range(draw(_POOL_BYTES // 16))])
    _padding.extend([0.5 + number for number in range(draw(_POOL_BYTES // 32))])
    for size in range(3 * _STEP_BYTES, _LARGEST_BYTES + 1, _STEP_BYTES):
        # The repeat avoids a literal that the compiler would share among all.
        _padding.extend([b"x" * (size - _HEADER_BYTES) for _ in range(draw(_POOL_BYTES // size))])
    _padding.extend(
        [bytes(_LARGEST_BYTES + _STEP_BYTES * draw(_BLOCK_BYTES // _STEP_BYTES)) for _ in range(_BLOCKS)]
    )


def keep_bytecode(root: str, folder: str) -> None:
    """Keep the bytecode of one folder's code in another, and that of everything else where it is.

    Bytecode that was compiled at another path would be patched at every import, on one side only.
    """
    external: Any = sys.modules["_frozen_importlib_external"]
    usual, inside = external.cache_from_source, f"{root}/"

    def cache_from_source(path: str, *given: Any, **named: Any) -> str:
        cached: str = usual(path, *given, **named)
        if not path.startswith(inside):
            return cached
        return f"{folder}/{os.path.dirname(path)[len(inside) :]}/{os.path.basename(cached)}"

    external.cache_from_source = cache_from_source
