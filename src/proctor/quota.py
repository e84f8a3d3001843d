"""How much one of many may hold: a part that is surely its own, and more as long as the others leave some."""

from __future__ import annotations


class Pool:
    """What all may hold together beyond their own parts."""

    def __init__(self, most: int) -> None:
        self.left = most


class Quota:
    """What one of them holds."""

    def __init__(self, pool: Pool, *, own: int, most: int) -> None:
        self.most = most
        self.held = 0
        self._pool = pool
        self._own = own

    def take(self, amount: int = 1) -> bool:
        """Hold so much more; False, and nothing is held, when that is more than there is."""
        held = self.held + amount
        if held > self.most:
            return False
        if held > self._own:
            borrowed = held - max(self.held, self._own)
            if borrowed > self._pool.left:
                return False
            self._pool.left -= borrowed
        self.held = held
        return True

    def give(self, amount: int = 1) -> None:
        """Hold so much less."""
        held = self.held - amount
        if self.held > self._own:
            self._pool.left += self.held - max(held, self._own)
        self.held = held
