"""The schema, once. Imported for migrations and PostgreSQL only: SQLAlchemy is slow to start.

`schema.sql` is this file written out for SQLite; `python -m proctor.store.tables` writes it again.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.types import TypeEngine

Real: TypeEngine[float] = Double().with_variant(sqlite.REAL(), "sqlite")
"""STRICT tables know REAL and no other spelling of it."""
BigId: TypeEngine[int] = BigInteger().with_variant(sqlite.INTEGER(), "sqlite")

metadata = MetaData()


def _of_run() -> Column[str]:
    return Column("run_id", Text, ForeignKey("runs.id", ondelete="CASCADE"), nullable=False)


runs = Table(
    "runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("created_at", Real, nullable=False),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("started_at", Real),
    Column("finished_at", Real),
    Column("total", Integer, nullable=False),
    Column("folder", Text, nullable=False),
    Column("head", Text, nullable=False),
    Column("detail", LargeBinary, nullable=False),
    Index("runs_by_age", "created_at", "id"),
    Index("runs_by_name", "name", "created_at"),
    Index("runs_by_status", "status", "created_at"),
    sqlite_strict=True,
)

run_counts = Table(
    "run_counts",
    metadata,
    _of_run(),
    Column("state", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("shard", Integer, nullable=False, server_default=text("0")),
    Column("trials", Integer, nullable=False),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("seconds", Real, nullable=False, server_default=text("0")),
    PrimaryKeyConstraint("run_id", "state", "outcome", "shard"),
    sqlite_strict=True,
)

trials = Table(
    "trials",
    metadata,
    _of_run(),
    Column("idx", Integer, nullable=False),
    Column("key", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("subject_digest", Text, nullable=False),
    Column("body", Integer, nullable=False),
    Column("agent", Text),
    Column("agent_version", Text),
    Column("model", Text),
    Column("rollout", Integer, nullable=False),
    Column("doc", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("fence", Integer, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("ready_at", Real, nullable=False),
    Column("worker", Text),
    Column("expires_at", Real),
    Column("started_at", Real),
    Column("outcome", Text),
    Column("backend", Text, nullable=False, server_default=text("''")),
    Column("memory_mb", Integer, nullable=False, server_default=text("0")),
    Column("cpus", Real, nullable=False, server_default=text("0")),
    Column("labels", Text, nullable=False, server_default=text("''")),
    PrimaryKeyConstraint("run_id", "idx"),
    UniqueConstraint("run_id", "key", name="one_trial_per_key"),
    CheckConstraint("state IN ('pending', 'leased', 'running', 'done', 'cancelled')", name="known_state"),
    CheckConstraint(
        "(state IN ('leased', 'running')) = (expires_at IS NOT NULL)", name="lease_only_when_held"
    ),
    sqlite_strict=True,
)
Index(
    "trials_pending",
    trials.c.run_id,
    trials.c.idx,
    sqlite_where=text("state = 'pending'"),
    postgresql_where=text("state = 'pending'"),
)
Index(
    "trials_leased",
    trials.c.run_id,
    trials.c.expires_at,
    sqlite_where=text("expires_at IS NOT NULL"),
    postgresql_where=text("expires_at IS NOT NULL"),
)

attempts = Table(
    "attempts",
    metadata,
    _of_run(),
    Column("idx", Integer, nullable=False),
    Column("number", Integer, nullable=False),
    Column("subject", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("counts", Integer, nullable=False),
    Column("started_at", Real, nullable=False),
    Column("ended_at", Real, nullable=False),
    Column("reward", Real),
    Column("worker", Text, nullable=False),
    Column("record", LargeBinary, nullable=False),
    Column("work_s", Real),
    PrimaryKeyConstraint("run_id", "idx", "number"),
    sqlite_strict=True,
)
Index(
    "attempts_that_count",
    attempts.c.run_id,
    attempts.c.idx,
    unique=True,
    sqlite_where=text("counts = 1"),
    postgresql_where=text("counts = 1"),
)
Index(
    "attempts_by_subject",
    attempts.c.subject,
    attempts.c.ended_at,
    sqlite_where=text("counts = 1"),
    postgresql_where=text("counts = 1"),
)

blob_refs = Table(
    "blob_refs",
    metadata,
    _of_run(),
    Column("digest", Text, nullable=False),
    Column("size_bytes", BigId, nullable=False),
    PrimaryKeyConstraint("run_id", "digest"),
    Index("blob_refs_by_digest", "digest"),
    sqlite_strict=True,
)

run_inputs = Table(
    "run_inputs",
    metadata,
    _of_run(),
    Column("name", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("size_bytes", BigId, nullable=False),
    Column("place", Text, nullable=False),
    PrimaryKeyConstraint("run_id", "name"),
    Index("run_inputs_by_name", "name"),
    sqlite_strict=True,
)

events = Table(
    "events",
    metadata,
    Column("id", BigId, primary_key=True, autoincrement=True),
    _of_run(),
    Column("at", Real, nullable=False),
    Column("kind", Text, nullable=False),
    Column("idx", Integer),
    Column("data", Text, nullable=False),
    Index("events_of_run", "run_id", "id"),
    sqlite_strict=True,
    sqlite_autoincrement=True,
)

coordinators = Table(
    "coordinators",
    metadata,
    Column("run_id", Text, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("holder", Text, nullable=False),
    Column("fence", Integer, nullable=False),
    Column("expires_at", Real, nullable=False),
    sqlite_strict=True,
)

workers = Table(
    "workers",
    metadata,
    Column("name", Text, primary_key=True),
    Column("host", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("parallel", Integer, nullable=False),
    Column("running", Integer, nullable=False),
    Column("cpus", Real, nullable=False),
    Column("memory_mb", Integer, nullable=False),
    Column("backends", Text, nullable=False),
    Column("labels", Text, nullable=False),
    Column("run", Text, nullable=False),
    Column("draining", Integer, nullable=False),
    Column("since", Real, nullable=False),
    Column("seen_at", Real, nullable=False),
    Column("place", Text, nullable=False, server_default=text("''")),
    Column("left_runs", Text, nullable=False, server_default=text("'{}'")),
    Index("workers_by_sight", "seen_at"),
    Index("workers_by_place", "place"),
    sqlite_strict=True,
)

gateways = Table(
    "gateways",
    metadata,
    Column("id", Text, primary_key=True),
    Column("expires_at", Real, nullable=False),
    sqlite_strict=True,
)


def _of_gateway() -> Column[str]:
    return Column("holder", Text, ForeignKey("gateways.id", ondelete="CASCADE"), nullable=False)


portions = Table(
    "portions",
    metadata,
    Column("scope", Text, nullable=False),
    Column("name", Text, nullable=False),
    _of_gateway(),
    Column("requests", BigId, nullable=False),
    Column("tokens", BigId, nullable=False),
    Column("nano_usd", BigId, nullable=False),
    PrimaryKeyConstraint("scope", "name", "holder"),
    Index("portions_of_holder", "holder"),
    sqlite_strict=True,
)

limits = Table(
    "limits",
    metadata,
    Column("provider", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("size", Real, nullable=False),
    Column("slow_start", Integer, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("closed_until", Real, nullable=False),
    PrimaryKeyConstraint("provider", "model"),
    sqlite_strict=True,
)

limit_shares = Table(
    "limit_shares",
    metadata,
    Column("provider", Text, nullable=False),
    Column("model", Text, nullable=False),
    _of_gateway(),
    Column("share", Integer, nullable=False),
    Column("wanted", Text, nullable=False),
    Column("served_at", Real, nullable=False),
    PrimaryKeyConstraint("provider", "model", "holder"),
    Index("limit_shares_of_holder", "holder"),
    sqlite_strict=True,
)

shared_layers = Table(
    "shared_layers",
    metadata,
    Column("key", Text, nullable=False),
    Column("platform", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("size_bytes", BigId, nullable=False),
    Column("used_at", Real, nullable=False),
    PrimaryKeyConstraint("key", "platform"),
    sqlite_strict=True,
)

model_calls = Table(
    "model_calls",
    metadata,
    Column("id", Text, primary_key=True),
    _of_run(),
    Column("idx", Integer, nullable=False),
    Column("number", Integer, nullable=False),
    Column("at", Real, nullable=False),
    Column("model", Text, nullable=False),
    Column("held_tokens", BigId, nullable=False),
    Column("held_nano_usd", BigId),
    Column("settled", Integer, nullable=False),
    Column("prompt_tokens", BigId),
    Column("completion_tokens", BigId),
    Column("cached_tokens", BigId),
    Column("cache_write_tokens", BigId),
    Column("reasoning_tokens", BigId),
    Column("nano_usd", BigId),
    Column("waited_s", Real),
    Column("first_token_s", Real),
    Column("worked_s", Real),
    Column("retries", Integer),
    Column("status", Integer),
    Column("holder", Text, ForeignKey("gateways.id")),
    Column("scopes", Text),
    Index("model_calls_of_run", "run_id", "idx", "number"),
    sqlite_strict=True,
)
Index(
    "model_calls_open",
    model_calls.c.holder,
    sqlite_where=text("holder IS NOT NULL"),
    postgresql_where=text("holder IS NOT NULL"),
)

spending = Table(
    "spending",
    metadata,
    Column("scope", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("run_id", Text, ForeignKey("runs.id", ondelete="CASCADE")),
    Column("requests", BigId, nullable=False),
    Column("tokens", BigId, nullable=False),
    Column("nano_usd", BigId, nullable=False),
    Column("held_tokens", BigId, nullable=False),
    Column("held_nano_usd", BigId, nullable=False),
    PrimaryKeyConstraint("scope", "name"),
    sqlite_strict=True,
)


def sqlite_schema() -> str:
    """The schema as SQLite statements, with the revision that they amount to."""
    from proctor.store.database import HEAD, VERSION_TABLE
    from proctor.store.service import tables as _service  # noqa: F401 - adds its tables to the metadata

    dialect = sqlite.dialect()
    parts: list[str] = []
    for table in metadata.sorted_tables:
        parts.append(str(CreateTable(table).compile(dialect=dialect)))
        parts += [
            str(CreateIndex(index).compile(dialect=dialect))
            for index in sorted(table.indexes, key=lambda each: str(each.name))
        ]
    parts.append("INSERT INTO projects (id, title, created_at) VALUES ('default', 'Default', 0)")
    parts.append(f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")
    parts.append(f"INSERT INTO {VERSION_TABLE} VALUES ('{HEAD}')")
    return "".join(f"{_tidy(part)};\n\n" for part in parts)


def _tidy(statement: str) -> str:
    return "\n".join(line.rstrip() for line in statement.strip().replace("\t", "  ").splitlines())


if __name__ == "__main__":
    # The metadata is that of the imported module, not of this one as a script.
    from proctor.store import tables  # noqa: PLW0406

    Path(__file__).with_name("schema.sql").write_text(tables.sqlite_schema())
