"""Four sets of SQLite pragmas, put in force and read back."""

from __future__ import annotations

import sqlite3

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
