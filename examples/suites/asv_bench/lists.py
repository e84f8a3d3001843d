"""Lists: time and memory."""


class Sorting:
    """Sort a list that is in the wrong order."""

    params = [100, 1000]
    param_names = ["size"]

    def setup(self, size):
        """Make the list."""
        self.items = [*range(size, 0, -1)]

    def time_sorted(self, size):
        """Sort it."""
        sorted(self.items)

    def mem_copy(self, size):
        """How large is a copy?"""
        return [*self.items]
