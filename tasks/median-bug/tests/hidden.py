import sys

sys.path.insert(0, "/app")

import pytest

from stats import median, running_median, window


@pytest.mark.parametrize(("values", "wanted"), [([1], 1), ([1, 2], 1.5), ([5, 1, 4, 2], 3), ([2, 2, 9, 9], 5.5)])
def test_medians(values, wanted):
    assert median(values) == wanted


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_window_is_there(size):
    values = [1, 2, 3, 4, 5]
    assert window(values, size) == [values[at : at + size] for at in range(6 - size)]


def test_a_window_larger_than_the_values_is_no_window():
    assert window([1], 2) == []


def test_bad_sizes_are_refused():
    with pytest.raises(ValueError):
        window([1], 0)


def test_both_together():
    assert running_median([1, 2, 3, 4], 2) == [1.5, 2.5, 3.5]
