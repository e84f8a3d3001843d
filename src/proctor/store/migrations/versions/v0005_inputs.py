"""What a run is made from; and counters in several rows, so that workers do not wait for each other."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import sqlite
from sqlalchemy.types import TypeEngine

revision = "0005"
down_revision: str | None = "0004"

BigId: TypeEngine[int] = sa.BigInteger().with_variant(sqlite.INTEGER(), "sqlite")


def upgrade() -> None:
    """Add the table, and the shard to the key of the counters."""
    op.create_table(
        "run_inputs",
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("size_bytes", BigId, nullable=False),
        sa.Column("place", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "name"),
        sqlite_strict=True,
    )
    op.create_index("run_inputs_by_name", "run_inputs", ["name"])
    if op.get_bind().dialect.name == "postgresql":
        op.add_column(
            "run_counts", sa.Column("shard", sa.Integer, nullable=False, server_default=sa.text("0"))
        )
        op.drop_constraint("run_counts_pkey", "run_counts")
        op.create_primary_key("run_counts_pkey", "run_counts", ["run_id", "state", "outcome", "shard"])
    else:
        _make_counts_anew()


def _make_counts_anew() -> None:
    """SQLite cannot alter a key."""
    op.rename_table("run_counts", "run_counts_before")
    op.create_table(
        "run_counts",
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("shard", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("trials", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "state", "outcome", "shard"),
        sqlite_strict=True,
    )
    op.execute(
        "INSERT INTO run_counts (run_id, state, outcome, shard, trials) "
        "SELECT run_id, state, outcome, 0, trials FROM run_counts_before"
    )
    op.drop_table("run_counts_before")
