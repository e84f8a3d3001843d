#!/bin/bash
set -e
cat > /app/totals.py <<'EOF'
"""The total of every shop."""

import sys


def totals(path):
    """Shop and total, in the order of names."""
    found = {}
    with open(path) as file:
        for line in file:
            shop, _, cents = line.strip().partition(",")
            found[shop] = found.get(shop, 0) + int(cents)
    return sorted(found.items())


if __name__ == "__main__":
    for shop, cents in totals(sys.argv[1]):
        print(shop, cents)
EOF
