"""The performance harness: a scenario becomes episodes, and `report.perf` writes what came of them."""
