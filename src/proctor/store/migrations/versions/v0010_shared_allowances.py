"""What machines share: portions of budgets, limits of providers, layers of built images."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import sqlite
from sqlalchemy.types import TypeEngine

revision = "0010"
down_revision: str | None = "0009"

Real: TypeEngine[float] = sa.Double().with_variant(sqlite.REAL(), "sqlite")
BigId: TypeEngine[int] = sa.BigInteger().with_variant(sqlite.INTEGER(), "sqlite")


def upgrade() -> None:
    """Add the tables, and which gateway makes a call."""
    op.create_table(
        "gateways",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("expires_at", Real, nullable=False),
        sqlite_strict=True,
    )
    # Alembic adds no column with a foreign key to SQLite, and both databases take this.
    op.execute("ALTER TABLE model_calls ADD COLUMN holder TEXT REFERENCES gateways (id)")
    op.add_column("model_calls", sa.Column("scopes", sa.Text))
    open_only = sa.text("holder IS NOT NULL")
    op.create_index(
        "model_calls_open", "model_calls", ["holder"], sqlite_where=open_only, postgresql_where=open_only
    )
    op.create_table(
        "portions",
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        _of_gateway(),
        sa.Column("requests", BigId, nullable=False),
        sa.Column("tokens", BigId, nullable=False),
        sa.Column("nano_usd", BigId, nullable=False),
        sa.PrimaryKeyConstraint("scope", "name", "holder"),
        sqlite_strict=True,
    )
    op.create_index("portions_of_holder", "portions", ["holder"])
    op.create_table(
        "limits",
        sa.Column("provider", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("size", Real, nullable=False),
        sa.Column("slow_start", sa.Integer, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("closed_until", Real, nullable=False),
        sa.PrimaryKeyConstraint("provider", "model"),
        sqlite_strict=True,
    )
    op.create_table(
        "limit_shares",
        sa.Column("provider", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        _of_gateway(),
        sa.Column("share", sa.Integer, nullable=False),
        sa.Column("wanted", sa.Text, nullable=False),
        sa.Column("served_at", Real, nullable=False),
        sa.PrimaryKeyConstraint("provider", "model", "holder"),
        sqlite_strict=True,
    )
    op.create_index("limit_shares_of_holder", "limit_shares", ["holder"])
    op.create_table(
        "shared_layers",
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("size_bytes", BigId, nullable=False),
        sa.Column("used_at", Real, nullable=False),
        sa.PrimaryKeyConstraint("key", "platform"),
        sqlite_strict=True,
    )


def _of_gateway() -> sa.Column[str]:
    return sa.Column("holder", sa.Text, sa.ForeignKey("gateways.id", ondelete="CASCADE"), nullable=False)
