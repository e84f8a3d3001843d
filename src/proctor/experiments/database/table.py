"""One table under one pragma profile and one workload: its operations, and what they must come to.

The same operations run in every call, so that the database neither grows nor drifts. Each call writes values
of its own, because SQLite skips a write that changes nothing. What the reads must add up to, and what the
table must hold at the end, is worked out beforehand.
"""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from time import perf_counter_ns
from typing import NamedTuple

from proctor.experiments.database.profiles import apply_profile, check_profile

WRITE_SHARE = {"write-heavy": 0.9, "read-heavy": 0.1, "mixed": 0.5}


class Operation(NamedTuple):
    """One write, or one read when `value` is None. Call number n writes `value + n`."""

    key: int
    value: int | None


class Done(NamedTuple):
    """One call: its length, and the nanoseconds of each operation."""

    operations: int
    elapsed_s: float
    total: int
    reads: list[int]
    writes: list[int]
    commits: list[int]


class Table:
    """A database file of its own, from `create` to `close`."""

    def __init__(self, file: Path, *, profile: str, workload: str, batch: int) -> None:
        self.file, self.profile, self.workload, self.batch = file, profile, workload, batch
        self.connection: sqlite3.Connection | None = None
        self.calls = 0

    def create(self, seed: int, operations: int, records: int, payload: bytes) -> None:
        """Make the file, put the pragmas in force and fill the table."""
        self._remove_files()
        self.operations = plan_operations(seed, operations, records, WRITE_SHARE[self.workload])
        self.expected = Expected(self.operations)
        self.records, self.payload = records, payload
        self.connection = sqlite3.connect(self.file, isolation_level=None)
        apply_profile(self.connection, self.profile)
        self.connection.execute("CREATE TABLE item (key INTEGER PRIMARY KEY, value INTEGER, payload BLOB)")
        self.connection.execute("BEGIN")
        self.connection.executemany(
            "INSERT INTO item VALUES (?, 0, ?)", ((key, payload) for key in range(records))
        )
        self.connection.execute("COMMIT")

    def run(self) -> Done:
        """All operations once; AssertionError when the reads do not add up."""
        assert self.connection is not None
        started = perf_counter_ns()
        total, reads, writes, commits = self._operate(self.connection)
        elapsed_s = (perf_counter_ns() - started) / 1e9
        expected = self.expected.read_total(self.calls)
        self.calls += 1
        if total != expected:
            raise AssertionError(f"the reads add up to {total}, but {expected} was written")
        return Done(len(self.operations), elapsed_s, total, reads, writes, commits)

    def check(self) -> None:
        """Every row and the pragmas, once it has been used."""
        if self.connection is None or not self.calls:
            return
        check_profile(self.connection, self.profile)
        rows = dict(self.connection.execute("SELECT key, value FROM item"))
        if rows != self.expected.rows(self.records, self.calls):
            raise AssertionError("the table does not hold what was written")
        answer = self.connection.execute("PRAGMA integrity_check").fetchone()[0]
        if answer != "ok":
            raise AssertionError(f"integrity_check: {answer}")

    def close(self) -> None:
        """Close and remove what is on disk."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None
        self._remove_files()

    def file_bytes(self) -> int:
        """The file and what SQLite keeps beside it."""
        return sum(path.stat().st_size for path in self.file.parent.glob(f"{self.file.name}*"))

    def _operate(self, connection: sqlite3.Connection) -> tuple[int, list[int], list[int], list[int]]:
        reads: list[int] = []
        writes: list[int] = []
        commits: list[int] = []
        total = 0
        execute, batch, payload, call = connection.execute, self.batch, self.payload, self.calls
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
