"""Where should a simulation keep its log: on disk, in memory, or in memory and then on disk?

Three arms that write the same rows. What each arm claims to be is asserted in every call, and that all hold
the same content is asserted at the end.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, NamedTuple

from proctor.experiments.base import Experiment, ExperimentContext, register_experiment
from proctor.experiments.simulation.log import (
    count_rows,
    create_tables,
    file_bytes,
    main_file,
    stored_digest,
    write_steps,
)
from proctor.experiments.simulation.world import Simulation, SimulationConfig, StepLog, log_digest

ARMS = ("disk", "memory", "memory_persisted")
OLDER_SWITCHES = {
    "test_disk_based": "disk",
    "test_in_memory": "memory",
    "test_persistence": "memory_persisted",
}
"""Keys of the older `parameters` mapping, and the arm that each switches off when it is false."""


@register_experiment(
    "memory_db",
    summary="An agent simulation that logs to SQLite on disk, in memory, or in memory and then to disk",
    tags=("database", "sqlite", "simulation"),
)
class MemoryDb(Experiment):
    """Runs whole simulations, each from an empty database to a finished log."""

    param_schema: ClassVar = {
        "arm": {
            "type": "str",
            "default": "all",
            "choices": [*ARMS, "all"],
            "description": "where the log is kept; all: each in turn, with speed-ups",
        },
        "num_agents": {"type": "int", "default": 100, "minimum": 1, "description": "agents at the start"},
        "num_steps": {"type": "int", "default": 50, "minimum": 1, "description": "steps per simulation"},
        "commit_every": {"type": "int", "default": 5, "minimum": 1, "description": "steps per transaction"},
        "journal_mode": {
            "type": "str",
            "default": "delete",
            "choices": ["delete", "wal"],
            "description": "journal of the database on disk",
        },
        "rounds": {
            "type": "int",
            "default": 3,
            "minimum": 1,
            "description": "with arm 'all': simulations of each arm per call",
        },
        "parameters": {
            "type": "dict",
            "default": None,
            "description": "with arm 'all': switches off arms, as older specs do",
        },
    }

    calls = 0

    def setup(self, context: ExperimentContext) -> None:
        """Simulate once without any database: that is what every arm must hold in the end."""
        remove_files(context)
        self.arms = chosen_arms(self.params["arm"], self.params.get("parameters"))
        self.kept: dict[str, Kept] = {}
        """Of each arm the last simulation that ended well: only that has a whole log to check."""
        self.config = SimulationConfig(
            num_agents=self.params["num_agents"], num_steps=self.params["num_steps"], seed=context.seed
        )
        self.expected_rows = 0
        steps = []
        for step in Simulation(self.config).run():
            steps.append((step.states, step.actions))
            self.expected_rows += len(step.states) + len(step.actions)
        self.expected_digest = log_digest(steps)
        if self.params["arm"] == "all":
            import proctor.analysis.scaling  # noqa: F401 - so that no call pays for the import

    def execute_once(self, context: ExperimentContext) -> dict[str, Any]:
        """Simulate, log, and leave the log where the arm says."""
        if self.params["arm"] != "all":
            return self._simulate_in(self.params["arm"], context)
        times: dict[str, list[float]] = {arm: [] for arm in self.arms}
        for number in range(self.params["rounds"]):
            turn = (number + context.iteration_index) % len(self.arms)
            for arm in (*self.arms[turn:], *self.arms[:turn]):
                done = self._simulate_in(arm, context)
                times[arm].append(self.config.num_steps / done["steps_per_s"])
        return compared(times)

    def teardown(self, context: ExperimentContext) -> None:
        """Read every whole log back and compare it with what was simulated."""
        try:
            for arm, kept in getattr(self, "kept", {}).items():
                _require(stored_digest(kept.connection) == self.expected_digest, f"{arm}: the log differs")
                if arm != "memory":
                    self._check_file(kept.file)
        finally:
            for arm in [*getattr(self, "kept", {})]:
                self._close(arm)
            remove_files(context)

    def _simulate_in(self, arm: str, context: ExperimentContext) -> dict[str, Any]:
        self._close(arm)
        # Removing a file just written costs some per cent of a call here: files wait for teardown.
        self.calls += 1
        file = Path(context.run_dir) / f"memory_db_{self.calls}.db"
        started = perf_counter()
        connection = self._open(arm, file)
        try:
            create_tables(connection)
            rows, write_s = self._simulate(connection)
            before_persist = perf_counter()
            if arm == "memory_persisted":
                persist(connection, file)
            elif arm == "disk" and self.params["journal_mode"] == "wal":
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            ended = perf_counter()
            self._assert_arm(arm, connection, file, rows)
        except BaseException:
            connection.close()
            raise
        self.kept[arm] = Kept(connection, file)
        return {
            "steps_per_s": self.config.num_steps / (ended - started),
            "rows_per_s": rows / (ended - started),
            "rows": rows,
            "simulate_s": before_persist - started - write_s,
            "write_s": write_s,
            "persist_s": ended - before_persist,
            "db_bytes": _pragma(connection, "page_count") * _pragma(connection, "page_size"),
            "file_bytes": file_bytes(file),
        }

    def _open(self, arm: str, file: Path) -> sqlite3.Connection:
        if arm != "disk":
            return sqlite3.connect(":memory:", isolation_level=None)
        connection = sqlite3.connect(file, isolation_level=None)
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

    def _assert_arm(self, arm: str, connection: sqlite3.Connection, file: Path, rows: int) -> None:
        """The arm is what it says, and every row arrived."""
        in_memory = main_file(connection) == ""
        _require(in_memory == (arm != "disk"), f"arm '{arm}' has its database at {main_file(connection)!r}")
        journal = connection.execute("PRAGMA journal_mode").fetchone()[0]
        wanted = self.params["journal_mode"] if arm == "disk" else "memory"
        _require(journal == wanted, f"arm '{arm}' has journal mode '{journal}', not '{wanted}'")
        on_disk = file_bytes(file) > 0
        _require(on_disk == (arm != "memory"), f"arm '{arm}' {'left' if on_disk else 'left no'} file")
        _require(rows == self.expected_rows == count_rows(connection), "rows are missing")

    def _check_file(self, file: Path) -> None:
        """Check that the file contains the same log when it is opened again."""
        other = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)
        try:
            _require(stored_digest(other) == self.expected_digest, "the log in the file differs")
        finally:
            other.close()

    def _close(self, arm: str) -> None:
        kept = self.kept.pop(arm, None)
        if kept is not None:
            kept.connection.close()


class Kept(NamedTuple):
    """A finished log."""

    connection: sqlite3.Connection
    file: Path


def chosen_arms(arm: str, switches: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The arms to run; ValueError for switches that are unknown, or that leave nothing."""
    if switches is None:
        return ARMS if arm == "all" else (arm,)
    if arm != "all":
        raise ValueError("'parameters' switches arms off and needs arm 'all'")
    for name, value in switches.items():
        if name not in OLDER_SWITCHES or not isinstance(value, bool):
            known = ", ".join(OLDER_SWITCHES)
            raise ValueError(f"parameters: {name}={value!r}; it has {known}, each true or false")
    off = {OLDER_SWITCHES[name] for name, value in switches.items() if not value}
    if off == {*ARMS}:
        raise ValueError("parameters switches off every arm")
    return tuple(each for each in ARMS if each not in off)


def compared(times: Mapping[str, list[float]]) -> dict[str, float]:
    """The median time of each arm, and speed-ups over the disk with their intervals."""
    from statistics import median

    from proctor.analysis.scaling import speed_up

    short = {"disk": "disk", "memory": "memory", "memory_persisted": "memory_persist"}
    found = {f"{short[arm]}_time": median(taken) for arm, taken in times.items()}
    for arm, taken in times.items():
        if "disk" in times and arm != "disk":
            found |= speed_up(times["disk"], taken).metrics(f"disk_to_{short[arm]}_speedup")
    return found


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
