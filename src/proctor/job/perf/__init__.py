"""The performance harness: a scenario becomes episodes, the engine runs them, `report.perf` writes what came."""
