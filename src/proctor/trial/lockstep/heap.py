"""Pad the heap of a measured process, so that where its objects lie is drawn anew for each.

Address randomisation moves whole pages; where in a page an object begins, and with it which part of a cache
it uses, follows from what was allocated before. The worker loads this file by its path.
"""

from __future__ import annotations

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
