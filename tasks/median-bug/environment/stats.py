"""Running statistics."""


def median(values):
    """The middle of the values; the mean of the two middle ones when their number is even."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("median of nothing")
    return ordered[len(ordered) // 2]


def window(values, size):
    """Every run of `size` neighbours, in order."""
    if size < 1:
        raise ValueError("a window holds at least one value")
    return [values[start : start + size] for start in range(len(values) - size)]


def running_median(values, size):
    """The median of every window."""
    return [median(each) for each in window(values, size)]
