"""Where should a simulation keep its log: on disk, in memory, or in memory and then on disk?

Three arms that write the same rows. What each arm claims to be is asserted in every call, and that all hold
the same content is asserted at the end.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

from proctor.experiments.base import Experiment, ExperimentContext, register_experiment
from proctor.experiments.simulation import Simulation, SimulationConfig, StepLog, log_digest
from proctor.experiments.simulation_log import (
    count_rows,
    create_tables,
    file_bytes,
    main_file,
    stored_digest,
    write_steps,
)

ARMS = ("disk", "memory", "memory_persisted")


@register_experiment(
    "memory_db",
    summary="An agent simulation that logs to SQLite on disk, in memory, or in memory and then to disk",
    tags=("database", "sqlite", "simulation"),
)
class MemoryDb(Experiment):
    """Runs one whole simulation per call, from an empty database to a finished log."""

    param_schema: ClassVar = {
        "arm": {"type": "str", "default": "disk", "choices": [*ARMS], "description": "where the log is kept"},
        "num_agents": {"type": "int", "default": 100, "minimum": 1, "description": "agents at the start"},
        "num_steps": {"type": "int", "default": 50, "minimum": 1, "description": "steps per call"},
        "commit_every": {"type": "int", "default": 5, "minimum": 1, "description": "steps per transaction"},
        "journal_mode": {
            "type": "str",
            "default": "delete",
            "choices": ["delete", "wal"],
            "description": "journal of the database on disk",
        },
    }

    connection: sqlite3.Connection | None = None
    calls = 0
    complete = False
    """Whether the last call ended well: only then is there a whole log to check."""

    def setup(self, context: ExperimentContext) -> None:
        """Simulate once without any database: that is what every arm must hold in the end."""
        remove_files(context)
        self.config = SimulationConfig(
            num_agents=self.params["num_agents"], num_steps=self.params["num_steps"], seed=context.seed
        )
        self.expected_rows = 0
        steps = []
        for step in Simulation(self.config).run():
            steps.append((step.states, step.actions))
            self.expected_rows += len(step.states) + len(step.actions)
        self.expected_digest = log_digest(steps)

    def execute_once(self, context: ExperimentContext) -> dict[str, Any]:
        """Simulate, log, and leave the log where the arm says."""
        self.complete = False
        self._close()
        # Removing a file just written costs some per cent of a call here: files wait for teardown.
        self.calls += 1
        self.file = Path(context.run_dir) / f"memory_db_{self.calls}.db"
        started = perf_counter()
        connection = self.connection = self._open()
        create_tables(connection)
        rows, write_s = self._simulate(connection)
        before_persist = perf_counter()
        if self.params["arm"] == "memory_persisted":
            persist(connection, self.file)
        elif self.params["arm"] == "disk" and self.params["journal_mode"] == "wal":
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        ended = perf_counter()
        self._assert_arm(connection, rows)
        self.complete = True
        return {
            "steps_per_s": self.config.num_steps / (ended - started),
            "rows_per_s": rows / (ended - started),
            "rows": rows,
            "simulate_s": before_persist - started - write_s,
            "write_s": write_s,
            "persist_s": ended - before_persist,
            "db_bytes": _pragma(connection, "page_count") * _pragma(connection, "page_size"),
            "file_bytes": file_bytes(self.file),
        }

    def teardown(self, context: ExperimentContext) -> None:
        """Read the whole log back and compare it with what was simulated."""
        try:
            if self.connection is not None and self.complete:
                _require(stored_digest(self.connection) == self.expected_digest, "the log differs")
                if self.params["arm"] != "memory":
                    self._check_file()
        finally:
            self._close()
            remove_files(context)

    def _open(self) -> sqlite3.Connection:
        if self.params["arm"] != "disk":
            return sqlite3.connect(":memory:", isolation_level=None)
        connection = sqlite3.connect(self.file, isolation_level=None)
        connection.execute(f"PRAGMA journal_mode = {self.params['journal_mode']}")
        return connection

    def _simulate(self, connection: sqlite3.Connection) -> tuple[int, float]:
        rows, write_s = 0, 0.0
        waiting: list[StepLog] = []
        for step in Simulation(self.config).run():
            waiting.append(step)
            if len(waiting) == self.params["commit_every"] or step.step == self.config.num_steps - 1:
                before = perf_counter()
                rows += write_steps(connection, waiting)
                write_s += perf_counter() - before
                waiting = []
        return rows, write_s

    def _assert_arm(self, connection: sqlite3.Connection, rows: int) -> None:
        """The arm is what it says, and every row arrived."""
        arm = self.params["arm"]
        in_memory = main_file(connection) == ""
        _require(in_memory == (arm != "disk"), f"arm '{arm}' has its database at {main_file(connection)!r}")
        journal = connection.execute("PRAGMA journal_mode").fetchone()[0]
        wanted = self.params["journal_mode"] if arm == "disk" else "memory"
        _require(journal == wanted, f"arm '{arm}' has journal mode '{journal}', not '{wanted}'")
        on_disk = file_bytes(self.file) > 0
        _require(on_disk == (arm != "memory"), f"arm '{arm}' {'left' if on_disk else 'left no'} file")
        _require(rows == self.expected_rows == count_rows(connection), "rows are missing")

    def _check_file(self) -> None:
        """Check that the file contains the same log when it is opened again."""
        other = sqlite3.connect(f"{self.file.resolve().as_uri()}?mode=ro", uri=True)
        try:
            _require(stored_digest(other) == self.expected_digest, "the log in the file differs")
        finally:
            other.close()

    def _close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


def remove_files(context: ExperimentContext) -> None:
    """Delete the databases of all calls."""
    for path in Path(context.run_dir).glob("memory_db_*.db*"):
        path.unlink(missing_ok=True)


def persist(connection: sqlite3.Connection, file: Path) -> None:
    """Copy a database in memory to a file, page by page, and sync it."""
    target = sqlite3.connect(file, isolation_level=None)
    try:
        connection.backup(target)
    finally:
        target.close()


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


def _require(holds: bool, otherwise: str) -> None:
    """A check that stays when Python runs with -O."""
    if not holds:
        raise AssertionError(otherwise)
