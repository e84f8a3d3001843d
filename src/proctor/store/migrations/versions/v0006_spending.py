"""Calls of models and what they cost, by attempt, run and day: what budgets are held against."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import sqlite
from sqlalchemy.types import TypeEngine

revision = "0006"
down_revision: str | None = "0005"

Real: TypeEngine[float] = sa.Double().with_variant(sqlite.REAL(), "sqlite")
BigId: TypeEngine[int] = sa.BigInteger().with_variant(sqlite.INTEGER(), "sqlite")


def upgrade() -> None:
    """Add both tables."""
    op.create_table(
        "model_calls",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("idx", sa.Integer, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("at", Real, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("held_tokens", BigId, nullable=False),
        sa.Column("held_nano_usd", BigId),
        sa.Column("settled", sa.Integer, nullable=False),
        sa.Column("prompt_tokens", BigId),
        sa.Column("completion_tokens", BigId),
        sa.Column("cached_tokens", BigId),
        sa.Column("cache_write_tokens", BigId),
        sa.Column("reasoning_tokens", BigId),
        sa.Column("nano_usd", BigId),
        sqlite_strict=True,
    )
    op.create_index("model_calls_of_run", "model_calls", ["run_id", "idx", "number"])
    op.create_table(
        "spending",
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.id", ondelete="CASCADE")),
        sa.Column("requests", BigId, nullable=False),
        sa.Column("tokens", BigId, nullable=False),
        sa.Column("nano_usd", BigId, nullable=False),
        sa.Column("held_tokens", BigId, nullable=False),
        sa.Column("held_nano_usd", BigId, nullable=False),
        sa.PrimaryKeyConstraint("scope", "name"),
        sqlite_strict=True,
    )
