"""The first schema: runs, their trials and attempts, references to blobs, events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import sqlite
from sqlalchemy.types import TypeEngine

revision = "0001"
down_revision: str | None = None

Real: TypeEngine[float] = sa.Double().with_variant(sqlite.REAL(), "sqlite")
BigId: TypeEngine[int] = sa.BigInteger().with_variant(sqlite.INTEGER(), "sqlite")


def _of_run() -> sa.Column[str]:
    return sa.Column("run_id", sa.Text, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False)


def _partial_index(name: str, table: str, columns: list[str], where: str, *, unique: bool = False) -> None:
    op.create_index(
        name,
        table,
        columns,
        unique=unique,
        sqlite_where=sa.text(where),
        postgresql_where=sa.text(where),
    )


def upgrade() -> None:
    """Make every table."""
    _runs()
    _trials()
    _attempts()
    _events()


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("created_at", Real, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("started_at", Real),
        sa.Column("finished_at", Real),
        sa.Column("total", sa.Integer, nullable=False),
        sa.Column("folder", sa.Text, nullable=False),
        sa.Column("head", sa.Text, nullable=False),
        sa.Column("detail", sa.LargeBinary, nullable=False),
        sqlite_strict=True,
    )
    op.create_index("runs_by_age", "runs", ["created_at", "id"])
    op.create_index("runs_by_name", "runs", ["name", "created_at"])
    op.create_index("runs_by_status", "runs", ["status", "created_at"])
    op.create_table(
        "run_counts",
        _of_run(),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("trials", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "state", "outcome"),
        sqlite_strict=True,
    )


def _trials() -> None:
    op.create_table(
        "trials",
        _of_run(),
        sa.Column("idx", sa.Integer, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("subject_digest", sa.Text, nullable=False),
        sa.Column("body", sa.Integer, nullable=False),
        sa.Column("agent", sa.Text),
        sa.Column("agent_version", sa.Text),
        sa.Column("model", sa.Text),
        sa.Column("rollout", sa.Integer, nullable=False),
        sa.Column("doc", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("fence", sa.Integer, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("ready_at", Real, nullable=False),
        sa.Column("worker", sa.Text),
        sa.Column("expires_at", Real),
        sa.Column("started_at", Real),
        sa.Column("outcome", sa.Text),
        sa.PrimaryKeyConstraint("run_id", "idx"),
        sa.UniqueConstraint("run_id", "key", name="one_trial_per_key"),
        sa.CheckConstraint(
            "state IN ('pending', 'leased', 'running', 'done', 'cancelled')", name="known_state"
        ),
        sa.CheckConstraint(
            "(state IN ('leased', 'running')) = (expires_at IS NOT NULL)", name="lease_only_when_held"
        ),
        sqlite_strict=True,
    )
    _partial_index("trials_pending", "trials", ["run_id", "idx"], "state = 'pending'")
    _partial_index("trials_leased", "trials", ["run_id", "expires_at"], "expires_at IS NOT NULL")


def _attempts() -> None:
    op.create_table(
        "attempts",
        _of_run(),
        sa.Column("idx", sa.Integer, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("counts", sa.Integer, nullable=False),
        sa.Column("started_at", Real, nullable=False),
        sa.Column("ended_at", Real, nullable=False),
        sa.Column("reward", Real),
        sa.Column("worker", sa.Text, nullable=False),
        sa.Column("record", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "idx", "number"),
        sqlite_strict=True,
    )
    _partial_index("attempts_that_count", "attempts", ["run_id", "idx"], "counts = 1", unique=True)
    _partial_index("attempts_by_subject", "attempts", ["subject", "ended_at"], "counts = 1")
    op.create_table(
        "blob_refs",
        _of_run(),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("size_bytes", BigId, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "digest"),
        sqlite_strict=True,
    )
    op.create_index("blob_refs_by_digest", "blob_refs", ["digest"])


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("id", BigId, primary_key=True, autoincrement=True),
        _of_run(),
        sa.Column("at", Real, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("idx", sa.Integer),
        sa.Column("data", sa.Text, nullable=False),
        sqlite_strict=True,
        sqlite_autoincrement=True,
    )
    op.create_index("events_of_run", "events", ["run_id", "id"])
