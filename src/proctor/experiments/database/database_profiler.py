"""Where database time goes: inserts one by one and in batches, queries, updates, deletes, commits.

The rows are those of the agent simulation. Every call starts from an empty table in a new database and does
the same operations; what each must return is known from the rows.
"""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any, ClassVar

from proctor.experiments.base import Experiment, ExperimentContext, register_experiment
from proctor.experiments.clocks import percentiles_us, timed_ns
from proctor.experiments.database.profiles import PROFILES, apply_profile
from proctor.experiments.simulation.world import Simulation, SimulationConfig, State

OPERATIONS = ("insert", "batch", "select", "range", "aggregate", "update", "delete", "commit")


@register_experiment(
    "database_profiler",
    summary="Where SQLite's time goes: insert, batch, query, update, delete, commit, with percentiles",
    tags=("database", "sqlite", "profile"),
)
class DatabaseProfiler(Experiment):
    """Writes a simulation's states in two ways, asks for them in three, changes some and deletes some."""

    param_schema: ClassVar = {
        "records": {
            "type": "int",
            "default": 5000,
            "minimum": 10,
            "aliases": ["num_records"],
            "description": "rows; half are inserted one by one, half in batches",
        },
        "batch_size": {
            "type": "int",
            "default": 100,
            "minimum": 1,
            "description": "rows per batch and commit",
        },
        "queries": {"type": "int", "default": 200, "minimum": 1, "description": "queries of each kind"},
        "profile": {
            "type": "str",
            "default": "balanced",
            "choices": [*PROFILES],
            "description": "pragmas, as in pragma_profile",
        },
        "in_memory": {
            "type": "bool",
            "default": False,
            "description": "a database in memory, without pragmas",
        },
    }

    connection: sqlite3.Connection | None = None
    calls = 0

    def setup(self, context: ExperimentContext) -> None:
        """Simulate until there are enough rows."""
        self.run_dir = Path(context.run_dir)
        self.rows = draw_rows(self.params["records"], context.seed)
        pick = random.Random(context.seed)  # noqa: S311 - repeatable, no secret
        self.energies: dict[int, list[int]] = {}
        for row in self.rows:
            self.energies.setdefault(row.agent_id, []).append(row.energy)
        self.keys = [pick.randrange(len(self.rows)) for _ in range(self.params["queries"])]

    def execute_once(self, context: ExperimentContext) -> dict[str, Any]:  # noqa: ARG002 - nothing needed of it
        """All operations from an empty table; each is timed by itself."""
        self._close()
        self.calls += 1
        connection = self.connection = self._open()
        connection.execute(
            "CREATE TABLE state (id INTEGER PRIMARY KEY, step INTEGER, agent_id INTEGER, x INTEGER,"
            " y INTEGER, energy INTEGER, age INTEGER)"
        )
        connection.execute("CREATE INDEX state_by_agent ON state (agent_id, step)")
        times: dict[str, list[int]] = {name: [] for name in OPERATIONS}
        self._write(connection, times)
        self._ask(connection, times)
        self._change(connection, times)
        total = sum(map(sum, times.values()))
        return {
            **{f"{name}_s": sum(taken) / 1e9 for name, taken in times.items()},
            **{f"{name}_share": sum(taken) / total for name, taken in times.items()},
            **{
                k: v
                for name, taken in times.items()
                for k, v in percentiles_us(name, taken, (50, 95, 99)).items()
            },
            "insert_rows_per_s": len(times["insert"]) / sum(times["insert"]) * 1e9,
            "batch_rows_per_s": (len(self.rows) - len(times["insert"])) / sum(times["batch"]) * 1e9,
        }

    def teardown(self, context: ExperimentContext) -> None:
        """Close and remove the files."""
        self._close()
        for path in Path(context.run_dir).glob("database_profiler_*.db*"):
            path.unlink(missing_ok=True)

    def _open(self) -> sqlite3.Connection:
        if self.params["in_memory"]:
            return sqlite3.connect(":memory:", isolation_level=None)
        connection = sqlite3.connect(
            self.run_dir / f"database_profiler_{self.calls}.db", isolation_level=None
        )
        apply_profile(connection, self.params["profile"])
        return connection

    def _write(self, connection: sqlite3.Connection, times: dict[str, list[int]]) -> None:
        insert = "INSERT INTO state VALUES (?, ?, ?, ?, ?, ?, ?)"
        rows = [(number, *row) for number, row in enumerate(self.rows)]
        size, half = self.params["batch_size"], len(rows) // 2
        for first in range(0, half, size):
            connection.execute("BEGIN")
            for row in rows[first : min(first + size, half)]:
                timed_ns(times["insert"], connection.execute, insert, row)
            timed_ns(times["commit"], connection.execute, "COMMIT")
        for first in range(half, len(rows), size):
            connection.execute("BEGIN")
            some = rows[first : first + size]
            timed_ns(times["batch"], connection.executemany, insert, some)
            timed_ns(times["commit"], connection.execute, "COMMIT")

    def _ask(self, connection: sqlite3.Connection, times: dict[str, list[int]]) -> None:
        for key in self.keys:
            agent = self.rows[key].agent_id
            one = _asked(connection, times["select"], "SELECT energy FROM state WHERE id = ?", key)
            many = _asked(
                connection, times["range"], "SELECT id FROM state WHERE agent_id = ? ORDER BY step", agent
            )
            mean = _asked(
                connection, times["aggregate"], "SELECT sum(energy) FROM state WHERE agent_id = ?", agent
            )
            mine = self.energies[agent]
            if one != [(self.rows[key].energy,)] or len(many) != len(mine) or mean != [(sum(mine),)]:
                raise AssertionError(f"the rows of agent {agent} are not those that were written")

    def _change(self, connection: sqlite3.Connection, times: dict[str, list[int]]) -> None:
        connection.execute("BEGIN")
        for key in self.keys:
            _asked(connection, times["update"], "UPDATE state SET energy = energy + 1 WHERE id = ?", key)
        for key in set(self.keys):
            _asked(connection, times["delete"], "DELETE FROM state WHERE id = ?", key)
        timed_ns(times["commit"], connection.execute, "COMMIT")
        left = connection.execute("SELECT count(*) FROM state").fetchone()[0]
        if left != len(self.rows) - len(set(self.keys)):
            raise AssertionError(f"{left} rows are left")

    def _close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


def _asked(connection: sqlite3.Connection, times: list[int], sql: str, value: int) -> list[tuple[int, ...]]:
    """One statement with all its rows."""
    return timed_ns(times, lambda: connection.execute(sql, (value,)).fetchall())


def draw_rows(count: int, seed: int) -> list[State]:
    """States of a simulation, as many as asked for."""
    found: list[State] = []
    turn = 0
    while len(found) < count:
        for step in Simulation(SimulationConfig(num_agents=100, num_steps=100, seed=seed + turn)).run():
            found += step.states
            if len(found) >= count:
                break
        turn += 1
    return found[:count]
