"""Keep a simulation's log in SQLite, in batches, and read it back for checking."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

from proctor.experiments.simulation.world import StepLog, log_digest

_TABLES = """
CREATE TABLE state (step INTEGER, agent_id INTEGER, x INTEGER, y INTEGER, energy INTEGER, age INTEGER);
CREATE TABLE action (step INTEGER, agent_id INTEGER, action TEXT, target_id INTEGER, energy_delta INTEGER);
CREATE INDEX state_by_agent ON state (agent_id, step);
CREATE INDEX action_by_agent ON action (agent_id, step);
"""


def create_tables(connection: sqlite3.Connection) -> None:
    """The tables and indexes that a person would query afterwards."""
    connection.executescript(_TABLES)


def write_steps(connection: sqlite3.Connection, steps: Iterable[StepLog]) -> int:
    """Write some steps in one transaction; the number of rows."""
    rows = 0
    connection.execute("BEGIN")
    for step in steps:
        connection.executemany("INSERT INTO state VALUES (?, ?, ?, ?, ?, ?)", step.states)
        connection.executemany("INSERT INTO action VALUES (?, ?, ?, ?, ?)", step.actions)
        rows += len(step.states) + len(step.actions)
    connection.execute("COMMIT")
    return rows


def count_rows(connection: sqlite3.Connection) -> int:
    """How many rows the log holds."""
    counted: int = connection.execute(
        "SELECT (SELECT count(*) FROM state) + (SELECT count(*) FROM action)"
    ).fetchone()[0]
    return counted


def stored_digest(connection: sqlite3.Connection) -> str:
    """The digest of what the database holds, as `log_digest` has it of what was simulated."""
    return log_digest(_stored_steps(connection))


def main_file(connection: sqlite3.Connection) -> str:
    """The file behind a connection; empty when it lives in memory."""
    for _, name, file in connection.execute("PRAGMA database_list"):
        if name == "main":
            return str(file or "")
    return ""


def file_bytes(file: Path) -> int:
    """The size of a database on disk, its write-ahead log included; 0 when there is none."""
    both = (file, file.with_name(f"{file.name}-wal"))
    return sum(path.stat().st_size for path in both if path.exists())


def _stored_steps(
    connection: sqlite3.Connection,
) -> Iterator[tuple[sqlite3.Cursor, sqlite3.Cursor]]:
    last = connection.execute("SELECT coalesce(max(step), -1) FROM action").fetchone()[0]
    for step in range(last + 1):
        yield (
            connection.execute("SELECT * FROM state WHERE step = ? ORDER BY rowid", (step,)),
            connection.execute("SELECT * FROM action WHERE step = ? ORDER BY rowid", (step,)),
        )
