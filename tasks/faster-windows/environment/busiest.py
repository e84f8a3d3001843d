"""The busiest ten minutes of a list of visits."""

import sys

LENGTH = 600


def busiest(times):
    """How many visits the busiest period has, and when the earliest such period begins."""
    best, start = 0, 0
    ordered = sorted(times)
    for first in ordered:
        count = 0
        for each in ordered:
            if each >= first + LENGTH:
                break
            if each >= first:
                count += 1
        if count > best:
            best, start = count, first
    return best, start


if __name__ == "__main__":
    print(*busiest([int(line) for line in sys.stdin]))
