"""What SQLite's pragmas cost and give: four profiles under three workloads, on a real file.

With `all` for the profile or the workload, every call runs each combination in turn.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, ClassVar

from proctor.experiments.base import Experiment, ExperimentContext, register_experiment
from proctor.experiments.clocks import percentiles_us
from proctor.experiments.database.profiles import PROFILES
from proctor.experiments.database.table import WRITE_SHARE, Done, Table

_PAYLOAD_BYTES = 200


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
            "default": "all",
            "choices": [*PROFILES, "all"],
            "aliases": ["profiles"],
            "description": "set of pragmas; all: each in turn",
        },
        "workload": {
            "type": "str",
            "default": "all",
            "choices": [*WRITE_SHARE, "all"],
            "aliases": ["workloads"],
            "description": "share of writes; all: each in turn",
        },
        "operations": {
            "type": "int",
            "default": 500,
            "minimum": 1,
            "description": "reads and writes per call",
        },
        "records": {
            "type": "int",
            "default": 2000,
            "minimum": 1,
            "aliases": ["num_records"],
            "description": "rows in the table",
        },
        "payload_bytes": {
            "type": "int",
            "default": None,
            "minimum": 0,
            "description": f"blob in every row; {_PAYLOAD_BYTES} when neither it nor db_size_mb is given",
        },
        "db_size_mb": {
            "type": "float",
            "default": None,
            "exclusiveMinimum": 0,
            "description": "size of all blobs together, instead of payload_bytes",
        },
        "batch": {"type": "int", "default": 10, "minimum": 1, "description": "operations per transaction"},
    }

    tables: tuple[Table, ...] = ()

    def setup(self, context: ExperimentContext) -> None:
        """Make the files, put the pragmas in force and prove that they are."""
        p = self.params
        size = payload_bytes(p["records"], p.get("payload_bytes"), p.get("db_size_mb"))
        payload = random.Random(context.seed).randbytes(size)  # noqa: S311 - repeatable, no secret
        for profile in PROFILES if p["profile"] == "all" else (p["profile"],):
            for workload in WRITE_SHARE if p["workload"] == "all" else (p["workload"],):
                file = Path(context.run_dir) / f"pragma_profile_{profile}_{workload}.db"
                table = Table(file, profile=profile, workload=workload, batch=p["batch"])
                self.tables = (*self.tables, table)
                table.create(context.seed, p["operations"], p["records"], payload)

    def execute_once(self, context: ExperimentContext) -> dict[str, Any]:
        """Run all operations; each is timed by itself too."""
        if len(self.tables) == 1:
            return _in_detail(self.tables[0], self.tables[0].run())
        turn = context.iteration_index % len(self.tables)
        done = {(each.profile, each.workload): each.run() for each in _from(self.tables, turn)}
        return _side_by_side({(t.profile, t.workload): done[t.profile, t.workload] for t in self.tables})

    def teardown(self, context: ExperimentContext) -> None:  # noqa: ARG002 - nothing needed of it
        """Check every row and the pragmas once more, then close."""
        try:
            for table in self.tables:
                table.check()
        finally:
            for table in self.tables:
                table.close()


def payload_bytes(records: int, payload: int | None, db_size_mb: float | None) -> int:
    """The blob of a row; ValueError when it is given in two ways."""
    if payload is not None and db_size_mb is not None:
        raise ValueError("'payload_bytes' and 'db_size_mb' both say how large the table is; keep one")
    if db_size_mb is not None:
        return max(1, round(db_size_mb * 1e6 / records))
    return _PAYLOAD_BYTES if payload is None else payload


def _from(tables: tuple[Table, ...], first: int) -> tuple[Table, ...]:
    return (*tables[first:], *tables[:first])


def _in_detail(table: Table, done: Done) -> dict[str, Any]:
    return {
        "ops_per_s": done.operations / done.elapsed_s,
        "reads": len(done.reads),
        "writes": len(done.writes),
        "commits": len(done.commits),
        **percentiles_us("read", done.reads),
        **percentiles_us("write", done.writes),
        **percentiles_us("commit", done.commits),
        "db_bytes": table.file_bytes(),
    }


def _side_by_side(done: dict[tuple[str, str], Done]) -> dict[str, Any]:
    """Seconds of each combination, and how many times as fast as `balanced` it was."""
    raw: dict[str, dict[str, float]] = {}
    for (profile, workload), each in done.items():
        raw.setdefault(profile, {})[workload.replace("-", "_")] = each.elapsed_s
    found: dict[str, Any] = {
        f"{profile}_{workload}_s": seconds
        for profile, row in raw.items()
        for workload, seconds in row.items()
    }
    found["raw_results"] = raw
    if "balanced" in raw:
        normalised = {
            workload: {profile: base / row[workload] for profile, row in raw.items()}
            for workload, base in raw["balanced"].items()
        }
        found |= {
            f"{profile}_{workload}_speedup": value
            for workload, row in normalised.items()
            for profile, value in row.items()
            if profile != "balanced"
        }
        found["normalized_results"] = normalised
    return found
