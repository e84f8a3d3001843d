"""The total of every shop."""

import sys


def totals(path):
    """Shop and total, in the order of names."""
    rows = [line.strip().split(",") for line in open(path).readlines()]
    sales = [{"shop": shop, "cents": int(cents)} for shop, cents in rows]
    shops = sorted({sale["shop"] for sale in sales})
    return [(shop, sum(sale["cents"] for sale in sales if sale["shop"] == shop)) for shop in shops]


if __name__ == "__main__":
    for shop, cents in totals(sys.argv[1]):
        print(shop, cents)
