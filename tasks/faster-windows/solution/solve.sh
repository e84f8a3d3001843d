#!/bin/bash
set -e
cat > /app/busiest.py <<'EOF'
"""The busiest ten minutes of a list of visits."""

import sys

LENGTH = 600


def busiest(times):
    """How many visits the busiest period has, and when the earliest such period begins."""
    best, start, end = 0, 0, 0
    ordered = sorted(times)
    for at, first in enumerate(ordered):
        while end < len(ordered) and ordered[end] < first + LENGTH:
            end += 1
        if end - at > best:
            best, start = end - at, first
    return best, start


if __name__ == "__main__":
    print(*busiest([int(line) for line in sys.stdin]))
EOF
