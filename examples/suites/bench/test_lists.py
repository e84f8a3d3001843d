"""A suite for pytest-benchmark."""

import pytest


@pytest.mark.parametrize("size", [100, 1000])
def test_sorting(benchmark, size):
    """Sort a list that is in the wrong order."""
    assert benchmark(sorted, range(size, 0, -1))[0] == 1


def test_emptying(benchmark):
    """Each round needs a list of its own."""

    def empty(items):
        while items:
            items.pop()

    benchmark.pedantic(empty, setup=lambda: (([*range(1000)],), {}), rounds=10)
