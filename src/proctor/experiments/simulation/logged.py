"""A simulation with the way its log is kept, and running one to a file that can be analysed afterwards."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from proctor.errors import UsageError
from proctor.experiments.simulation.log import create_tables, write_steps
from proctor.experiments.simulation.world import Simulation, SimulationConfig, StepLog


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedSimulation:
    """What is simulated, and where its log is kept."""

    num_agents: int = 30
    num_steps: int = 100
    seed: int = 0
    use_in_memory_db: bool = False
    """Keep the log in memory while it grows."""
    persist_db_on_completion: bool = True
    """Copy a log in memory to the file at the end; without it, it is lost."""
    journal_mode: str = "delete"
    """Journal of a database that is on disk from the start: delete or wal."""
    commit_every: int = 10
    """Steps per transaction."""


class Logged(NamedTuple):
    """What came of it."""

    rows: int
    seconds: float


def configure_for_performance_with_persistence(config: Any = None) -> Any:
    """The configuration with its log in memory and copied to disk at the end.

    Takes a `LoggedSimulation`, of which it returns a changed copy, nothing, or any object with the attributes
    `use_in_memory_db` and `persist_db_on_completion`, which are set on it.
    """
    if config is None or isinstance(config, LoggedSimulation):
        return replace(config or LoggedSimulation(), use_in_memory_db=True, persist_db_on_completion=True)
    wanted = ("use_in_memory_db", "persist_db_on_completion")
    missing = [name for name in wanted if not hasattr(config, name)]
    if missing:
        raise UsageError(f"a {type(config).__name__} has no '{missing[0]}'; give a LoggedSimulation")
    for name in wanted:
        setattr(config, name, True)
    return config


def simulate(config: LoggedSimulation, file: Path) -> Logged:
    """Run it. The log is at `file` afterwards, unless it was in memory and not to be kept."""
    started = perf_counter()
    world = SimulationConfig(num_agents=config.num_agents, num_steps=config.num_steps, seed=config.seed)
    connection = sqlite3.connect(":memory:" if config.use_in_memory_db else file, isolation_level=None)
    try:
        if not config.use_in_memory_db:
            connection.execute(f"PRAGMA journal_mode = {config.journal_mode}")
        create_tables(connection)
        rows = _write(Simulation(world), connection, config.commit_every)
        if config.use_in_memory_db and config.persist_db_on_completion:
            _copy(connection, file)
    finally:
        connection.close()
    return Logged(rows, perf_counter() - started)


def _write(simulation: Simulation, connection: sqlite3.Connection, commit_every: int) -> int:
    rows = 0
    waiting: list[StepLog] = []
    for step in simulation.run():
        waiting.append(step)
        if len(waiting) == commit_every:
            rows += write_steps(connection, waiting)
            waiting = []
    return rows + (write_steps(connection, waiting) if waiting else 0)


def _copy(connection: sqlite3.Connection, file: Path) -> None:
    target = sqlite3.connect(file)
    try:
        connection.backup(target)
    finally:
        target.close()
