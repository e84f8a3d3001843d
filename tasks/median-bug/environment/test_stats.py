import pytest

from stats import median, window


def test_the_median_of_three_is_the_middle_one():
    assert median([3, 1, 2]) == 2


def test_nothing_has_no_median():
    with pytest.raises(ValueError):
        median([])


def test_the_first_window_is_at_the_start():
    assert window([1, 2, 3, 4], 2)[0] == [1, 2]
