"""What SQLite's pragmas cost and give: four profiles under three workloads, on a real file.

The same operations run in every call, so that the database neither grows nor drifts. Each call writes values
of its own, because SQLite skips a write that changes nothing. What the reads must add up to, and what the
table must hold at the end, is worked out beforehand.
"""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from time import perf_counter_ns
from typing import Any, ClassVar, NamedTuple

from proctor.experiments.base import Experiment, ExperimentContext, register_experiment
from proctor.model.describe import percentile

PROFILES: dict[str, dict[str, str | int]] = {
    # A write-ahead log without a sync per commit: safe against a crash of the program.
    "balanced": {
        "journal_mode": "wal",
        "synchronous": 1,
        "cache_size": -8_000,
        "temp_store": 0,
        "mmap_size": 0,
    },
    # No syncs, everything in memory that can be: a power cut may destroy the file.
    "performance": {
        "journal_mode": "memory",
        "synchronous": 0,
        "cache_size": -64_000,
        "temp_store": 2,
        "mmap_size": 268_435_456,
    },
    # A rollback journal, synced with its folder at every commit: safe against a power cut.
    "safety": {
        "journal_mode": "delete",
        "synchronous": 3,
        "cache_size": -2_000,
        "temp_store": 0,
        "mmap_size": 0,
    },
    # The smallest footprint: a tiny cache, nothing mapped, temporary tables on disk.
    "memory": {
        "journal_mode": "truncate",
        "synchronous": 1,
        "cache_size": -256,
        "temp_store": 1,
        "mmap_size": 0,
    },
}
WRITE_SHARE = {"write-heavy": 0.9, "mixed": 0.5, "read-heavy": 0.1}


class Operation(NamedTuple):
    """One write, or one read when `value` is None. Call number n writes `value + n`."""

    key: int
    value: int | None


@register_experiment(
    "pragma_profile",
    summary="SQLite pragma profiles under write-heavy, read-heavy and mixed work",
    tags=("database", "sqlite"),
)
class PragmaProfile(Experiment):
    """Reads and writes rows by key in transactions of `batch` operations."""

    param_schema: ClassVar = {
        "profile": {
            "type": "str",
            "default": "balanced",
            "choices": [*PROFILES],
            "description": "set of pragmas",
        },
        "workload": {
            "type": "str",
            "default": "mixed",
            "choices": [*WRITE_SHARE],
            "description": "share of writes",
        },
        "operations": {
            "type": "int",
            "default": 500,
            "minimum": 1,
            "description": "reads and writes per call",
        },
        "records": {"type": "int", "default": 2000, "minimum": 1, "description": "rows in the table"},
        "payload_bytes": {"type": "int", "default": 200, "minimum": 0, "description": "blob in every row"},
        "batch": {"type": "int", "default": 10, "minimum": 1, "description": "operations per transaction"},
    }

    connection: sqlite3.Connection | None = None

    def setup(self, context: ExperimentContext) -> None:
        """Make the file, put the pragmas in force and prove that they are."""
        p = self.params
        self.file = Path(context.run_dir) / "pragma_profile.db"
        self._remove_files()
        self.payload = random.Random(context.seed).randbytes(p["payload_bytes"])  # noqa: S311 - repeatable, no secret
        self.operations = plan_operations(
            context.seed, p["operations"], p["records"], WRITE_SHARE[p["workload"]]
        )
        self.expected = Expected(self.operations)
        self.calls = 0
        self.connection = sqlite3.connect(self.file, isolation_level=None)
        apply_profile(self.connection, p["profile"])
        self.connection.execute("CREATE TABLE item (key INTEGER PRIMARY KEY, value INTEGER, payload BLOB)")
        self.connection.execute("BEGIN")
        self.connection.executemany(
            "INSERT INTO item VALUES (?, 0, ?)", ((key, self.payload) for key in range(p["records"]))
        )
        self.connection.execute("COMMIT")

    def execute_once(self, context: ExperimentContext) -> dict[str, Any]:  # noqa: ARG002 - nothing needed of it
        """Run all operations; each is timed by itself too."""
        assert self.connection is not None
        started = perf_counter_ns()
        total, reads, writes, commits = self._run(self.connection)
        elapsed_s = (perf_counter_ns() - started) / 1e9
        expected = self.expected.read_total(self.calls)
        self.calls += 1
        if total != expected:
            raise AssertionError(f"the reads add up to {total}, but {expected} was written")
        return {
            "ops_per_s": len(self.operations) / elapsed_s,
            "reads": len(reads),
            "writes": len(writes),
            "commits": len(commits),
            **_percentiles_us("read", reads),
            **_percentiles_us("write", writes),
            **_percentiles_us("commit", commits),
            "db_bytes": sum(path.stat().st_size for path in self.file.parent.glob(f"{self.file.name}*")),
        }

    def teardown(self, context: ExperimentContext) -> None:  # noqa: ARG002 - nothing needed of it
        """Check every row and the pragmas once more, then close."""
        if self.connection is None:
            return
        try:
            if self.calls:
                check_profile(self.connection, self.params["profile"])
                self._check_rows(self.connection)
        finally:
            self.connection.close()
            self._remove_files()

    def _run(self, connection: sqlite3.Connection) -> tuple[int, list[int], list[int], list[int]]:
        reads: list[int] = []
        writes: list[int] = []
        commits: list[int] = []
        total = 0
        execute, batch, payload, call = connection.execute, self.params["batch"], self.payload, self.calls
        for first in range(0, len(self.operations), batch):
            execute("BEGIN")
            for key, value in self.operations[first : first + batch]:
                before = perf_counter_ns()
                if value is None:
                    total += execute("SELECT value FROM item WHERE key = ?", (key,)).fetchone()[0]
                    reads.append(perf_counter_ns() - before)
                else:
                    execute(
                        "UPDATE item SET value = ?, payload = ? WHERE key = ?", (value + call, payload, key)
                    )
                    writes.append(perf_counter_ns() - before)
            before = perf_counter_ns()
            execute("COMMIT")
            commits.append(perf_counter_ns() - before)
        return total, reads, writes, commits

    def _remove_files(self) -> None:
        """With what SQLite keeps beside it: a journal left by a killed process would be played back."""
        for path in self.file.parent.glob(f"{self.file.name}*"):
            path.unlink(missing_ok=True)

    def _check_rows(self, connection: sqlite3.Connection) -> None:
        rows = dict(connection.execute("SELECT key, value FROM item"))
        if rows != self.expected.rows(self.params["records"], self.calls):
            raise AssertionError("the table does not hold what was written")
        answer = connection.execute("PRAGMA integrity_check").fetchone()[0]
        if answer != "ok":
            raise AssertionError(f"integrity_check: {answer}")


def plan_operations(seed: int, count: int, records: int, write_share: float) -> list[Operation]:
    """Exactly `write_share` of writes, in an order that the seed decides, to rows that the seed decides."""
    pick = random.Random(seed)  # noqa: S311 - same
    writes = round(count * write_share)
    kinds = [True] * writes + [False] * (count - writes)
    pick.shuffle(kinds)
    return [
        Operation(pick.randrange(records), pick.randrange(1 << 24, 1 << 30) if is_write else None)
        for is_write in kinds
    ]


class Expected:
    """What reads must return and the table must hold, worked out without a database."""

    def __init__(self, operations: list[Operation]) -> None:
        self._last = {key: value for key, value in operations if value is not None}
        written: dict[int, int] = {}
        self._fresh: list[int] = []
        """Values read back in the call that wrote them."""
        self._carried: list[int] = []
        """Values read before this call has written them: the call before did."""
        for key, value in operations:
            if value is not None:
                written[key] = value
            elif key in written:
                self._fresh.append(written[key])
            elif key in self._last:
                self._carried.append(self._last[key])

    def read_total(self, call: int) -> int:
        """The sum of all reads of one call, counted from 0."""
        fresh = sum(self._fresh) + call * len(self._fresh)
        return fresh + (sum(self._carried) + (call - 1) * len(self._carried) if call else 0)

    def rows(self, records: int, calls: int) -> dict[int, int]:
        """The whole table after some calls."""
        return dict.fromkeys(range(records), 0) | {
            key: value + calls - 1 for key, value in self._last.items()
        }


def apply_profile(connection: sqlite3.Connection, profile: str) -> None:
    """Set every pragma of the profile and read each back."""
    for name, value in PROFILES[profile].items():
        connection.execute(f"PRAGMA {name} = {value}").fetchall()
    check_profile(connection, profile)


def check_profile(connection: sqlite3.Connection, profile: str) -> None:
    """Fail unless every pragma of the profile is in force."""
    for name, value in PROFILES[profile].items():
        row = connection.execute(f"PRAGMA {name}").fetchone()
        in_force = row[0] if row else None
        if in_force != value:
            raise AssertionError(f"PRAGMA {name} is {in_force!r} here, profile '{profile}' needs {value!r}")


def _percentiles_us(kind: str, times_ns: list[int]) -> dict[str, float]:
    ordered = sorted(times_ns)
    return {f"{kind}_p{part}_us": percentile(ordered, part) / 1e3 for part in (50, 95)} if ordered else {}
